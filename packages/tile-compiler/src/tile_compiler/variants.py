"""What the code of a GPU kernel takes for granted about a call, and the guard under which a launcher may choose it.

A kernel is compiled at one of these levels; the manifest's guard says which calls a level serves, and the runtime asks
for the next level when a call comes that none of those compiled serves:

    WHOLE_TILES   every dynamic extent is a multiple of its tile, no tensor passes 2^30 elements  no predicates, int32
    VECTORS       rows start at multiples of 16 bytes                                             vectors, predicates
    VECTORS       those whose length is known at compile time do                                  vectors of those
    ANYTHING      the element's own alignment                                                     element by element

Facts about extents enter the function as `T.assume(n % c == 0)` before its kernels, which every pass reads as it reads
the user's own (`tile_compiler.ranges`). Addresses are guarded by the vectors that were in fact made of them.

Measured for a dynamic f16 GEMM (128x128x32, 3 stages, sm_90a, NVRTC 13.5): 166, 212 and 243 registers, 0.16, 0.18 and
0.36 s to compile; a static one has 166. See docs/decisions/0010-launch-variants.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.ranges import NATURAL_ALIGNMENT, assumed_multiples, shape_variables
from tile_compiler.signature import Signature
from tile_compiler.simt.plan_clusters import wished
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

WHOLE_TILES, VECTORS, ANYTHING = 0, 1, 2
OPTION = "tl.variant"
VECTOR_BYTES = 16
LARGEST_FACTOR = 1024  # more is no tile, but some other quotient
INT32_ELEMENTS = 2**30  # half of what int32 holds: an element past the end, which a predicate masks, has an offset too


@dataclass(frozen=True)
class Assumptions:
    """What one compilation assumes: dimensions that are multiples, and whether offsets fit int32."""

    level: int
    multiples: dict[Any, int]
    narrow: bool = False

    def apply(self, func: tir.PrimFunc) -> tir.PrimFunc:
        """`func` with the assumptions as statements and attributes of its own."""
        if self.level == ANYTHING:
            return func.with_attr(NATURAL_ALIGNMENT, 1)
        promises = [_promise(var, factor) for var, factor in self.multiples.items()]
        return func.with_body(tile_ir.sequence([*promises, *tile_ir.statements(func.body)])) if promises else func

    def guard(self, signature: Signature, ctx: CompileContext) -> Any | None:
        """The manifest's guard; None if the code is right for every call."""
        names = signature.names
        parts: list[Any] = [["==", ["floormod", names[v], factor], 0] for v, factor in self.multiples.items()]
        for buffer, name in signature.params.items():
            if not tile_ir.is_buffer(buffer):
                continue
            alignment = ctx.alignments.get(name, 1)
            if alignment > dtype_of(tile_ir.dtype_name(buffer)).itemsize:
                parts.append(["==", ["floormod", ["address", name], alignment], 0])
            if name in ctx.filled:
                parts += [[">", signature.expression(e), 0] for e in buffer.ty.shape if tile_ir.static(e) is None]
            if self.narrow and not _is_static(buffer):
                parts.append(["<=", span(buffer, signature), INT32_ELEMENTS])
        return parts[0] if len(parts) == 1 else ["and", *parts] if parts else None


def assumptions(func: tir.PrimFunc, level: int) -> Assumptions:
    """What to assume at `level`, or at the first level after it that differs from the one before."""
    dynamic = any(not _is_static(b) for b in _tensors(func))
    levels = [Assumptions(WHOLE_TILES, whole_tiles(func), narrow=dynamic)]
    rows = whole_rows(func)
    if rows:
        levels.append(Assumptions(VECTORS, rows))
    if dynamic and _has_whole_rows(func):  # the tensors with dynamic rows should not slow down those with static ones
        levels.append(Assumptions(VECTORS, {}))
    levels.append(Assumptions(ANYTHING, {}))
    return levels[min(level, len(levels) - 1)]


def whole_rows(func: tir.PrimFunc) -> dict[Any, int]:
    """For each dimension in a row's extent or stride, how many of it make 16 bytes. Tensors that no kernel mentions have no
    say: what is passed for them may be of any size."""
    found: dict[Any, int] = {}
    mentioned = {node for node in tile_ir.walk(func.body) if tile_ir.is_buffer(node)}
    for buffer in _tensors(func):
        if buffer not in mentioned:
            continue
        kind = dtype_of(tile_ir.dtype_name(buffer))
        if kind.bits < 8 or not buffer.ty.shape:
            continue
        for size in (buffer.ty.shape[-1], *list(buffer.ty.strides or ())[:-1]):
            for var, factor in _factors(size, VECTOR_BYTES * 8 // kind.bits):
                found[var] = math.lcm(found.get(var, 1), factor)
    return _open(func, found)


def _has_whole_rows(func: tir.PrimFunc) -> bool:
    """Whether some tensor's rows begin at multiples of 16 bytes, if it does, whatever is passed."""
    return any(
        len(b.ty.shape) > 1
        and all(
            (tile_ir.static(size) or 1) * dtype_of(tile_ir.dtype_name(b)).bits % (VECTOR_BYTES * 8) == 0
            for size in (b.ty.shape[-1], *list(b.ty.strides or ())[:-1])
        )
        for b in _tensors(func)
    )


def whole_tiles(func: tir.PrimFunc) -> dict[Any, int]:
    """As `whole_rows`, and for each dimension the c of every `ceildiv(n, c)` that counts blocks or iterations; where blocks
    run in clusters, so many times c."""
    found = dict(whole_rows(func))
    dims = set(shape_variables(func))
    for count, together in _counts(func):
        for node in tile_ir.walk(count):
            if not isinstance(node, ir.prim.FloorDiv):
                continue
            factor = tile_ir.static(node.b)
            mentioned = {n for n in tile_ir.walk(node.a, ir.Var) if n in dims}
            if factor is None or not 1 < factor <= LARGEST_FACTOR or len(mentioned) != 1:
                continue
            (var,) = mentioned
            if math.lcm(found.get(var, 1), factor * together) <= LARGEST_FACTOR:
                factor *= together
            if math.lcm(found.get(var, 1), factor) <= LARGEST_FACTOR:
                found[var] = math.lcm(found.get(var, 1), factor)
    return _open(func, found)


def span(buffer: Any, signature: Signature) -> Any:
    """The elements between a tensor's first and last one, both counted, as a manifest expression."""
    shape = [signature.expression(e) for e in buffer.ty.shape]
    if not buffer.ty.strides:
        return shape[0] if len(shape) == 1 else ["*", *shape]
    steps = [signature.expression(s) for s in buffer.ty.strides]
    return ["+", 1, *(["*", ["-", e, 1], s] for e, s in zip(shape, steps))]


def _tensors(func: tir.PrimFunc) -> list[Any]:
    return [p for p in func.params if tile_ir.is_buffer(p)]


def _is_static(buffer: Any) -> bool:
    return all(tile_ir.static(e) is not None for e in (*buffer.ty.shape, *(buffer.ty.strides or ())))


def _counts(func: tir.PrimFunc) -> Iterator[tuple[Any, int]]:
    """The extents of grids and loops, and the values that the host computes for them; of how many it should be a multiple."""
    for stmt in tile_ir.statements(func.body):
        if isinstance(stmt, tir.Bind):
            yield stmt.value, 1
    for kernel in tile_ir.kernels(func):
        cluster = wished(kernel)
        dims = (1,) * len(kernel.grid) if cluster is None else cluster.dims
        yield from ((extent, dim) for (_, extent), dim in zip(kernel.grid, dims))
        yield from ((n.extent, 1) for n in tile_ir.walk(kernel.body, tir.For))


def _factors(size: Any, wanted: int) -> Iterator[tuple[Any, int]]:
    """(n, c) such that `size` is a multiple of `wanted` where n is one of c; for n, n * a and n // a."""
    if isinstance(size, ir.Var):
        yield size, wanted
    elif isinstance(size, (ir.prim.Mul, ir.prim.FloorDiv)) and isinstance(size.a, ir.Var):
        known = tile_ir.static(size.b)
        if known is not None and known > 0:
            yield size.a, wanted // math.gcd(wanted, known) if isinstance(size, ir.prim.Mul) else wanted * known


def _open(func: tir.PrimFunc, found: dict[Any, int]) -> dict[Any, int]:
    """The facts that the user has not promised already."""
    kernels = tile_ir.kernels(func)
    said = [assumed_multiples(func, k) for k in kernels]
    promised = {v: math.gcd(*(s.get(v, 1) for s in said)) for v in found} if said else {}
    return {v: c for v, c in found.items() if c > 1 and promised.get(v, 1) % c}


def _promise(var: Any, factor: int) -> tir.Evaluate:
    dtype = str(var.ty)
    condition = tir.EQ(tir.floormod(var, tir.const(factor, dtype)), tir.const(0, dtype))
    return tir.Evaluate(ir.Call(ir.Op.get("tirx.assume"), [condition], ret_ty="bool"))
