"""Parallel nests that stand for tile operators, and small constructors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx as tir

from tilelang.ir import tile_ir

WHAT = "tl.what"  # annotation of a nest: the operator as the user wrote it
CACHE = "tl.cache"  # annotation of a nest, attribute of what it becomes: how its loads treat the caches
ASYNC = "tl.async"  # annotation of a nest: a copy that may complete later (cp.async)
REGISTERS = "tl.registers"  # annotation of a loop over one thread's registers, made by lowering

_LETTERS = "ijkl"


def nest(
    extents: Sequence[Any],
    make: Callable[[list[Any]], Any],
    what: str,
    span: Any,
    *,
    asynchronous: bool = False,
    cache: str | None = None,
) -> Any:
    """`for i, j in T.Parallel(extents): make([i, j])`; a nest of one iteration for no extents."""
    sizes = list(extents) or [tir.const(1, "int32")]
    loop_vars = [tir.Var(_LETTERS[d] if d < 4 else f"i{d}", str(e.ty)) for d, e in enumerate(sizes)]
    body = make(loop_vars if extents else [])
    notes: dict[str, Any] = {WHAT: what}
    if asynchronous:
        notes[ASYNC] = 1
    if cache is not None:
        notes[CACHE] = cache
    return tile_ir.ParallelNest(tuple(loop_vars), tuple(sizes), body, notes, span).to_stmt()


def int32(value: int) -> Any:
    return tir.const(value, "int32")


def load(buffer: Any, *indices: Any) -> Any:
    return tir.BufferLoad(buffer, [int32(i) if isinstance(i, int) else i for i in indices])


def store(buffer: Any, value: Any, *indices: Any, span: Any = None) -> Any:
    return tir.BufferStore(buffer, value, [int32(i) if isinstance(i, int) else i for i in indices], span=span)


def call(name: str, *args: Any, dtype: str = "int32") -> Any:
    return tir.call_extern(dtype, name, *args)


def run(name: str, *args: Any, span: Any = None) -> Any:
    """The statement that calls a function of the device header for its effect."""
    return tir.Evaluate(call(name, *args), span=span)


def address(buffer: Any, *indices: Any) -> Any:
    return tir.address_of(load(buffer, *indices))


def local(size: int, dtype: str, name: str) -> Any:
    """A new array in registers."""
    return tir.decl_buffer((size,), dtype, name=name, scope="local", layout=None)


def unrolled(name: str, count: int, make: Callable[[Any], Any], span: Any = None) -> Any:
    """`for name in unroll(count): make(name)`; for one iteration the body alone."""
    if count == 1:
        return make(int32(0))
    var = tir.Var(name, "int32")
    notes = {REGISTERS: 1}
    return tir.For(var, int32(0), int32(count), tir.ForKind.UNROLLED, make(var), annotations=notes, span=span)


def serial(name: str, count: Any, make: Callable[[Any], Any], span: Any = None) -> Any:
    """A loop inside one thread's work on an operator."""
    if tile_ir.static(count) == 1:
        return make(int32(0))
    var = tir.Var(name, "int32")
    extent = int32(count) if isinstance(count, int) else count
    return tir.For(var, int32(0), extent, tir.ForKind.SERIAL, make(var), annotations={REGISTERS: 1}, span=span)


def under(conditions: Sequence[Any], body: Any, span: Any = None) -> Any:
    """`if all(conditions): body`."""
    conditions = [c for c in conditions if tile_ir.static(c) != 1]
    if not conditions:
        return body
    condition = conditions[0]
    for part in conditions[1:]:
        condition = tir.And(condition, part)
    return tir.IfThenElse(condition, body, None, span=span)


def is_fragment(buffer: Any) -> bool:
    return str(buffer.scope()) in tile_ir.FRAGMENT


def is_shared(buffer: Any) -> bool:
    return str(buffer.scope()) in tile_ir.SHARED


def is_global(buffer: Any) -> bool:
    return str(buffer.scope()) in tile_ir.GLOBAL


def is_whole(region: Any) -> bool:
    """Whether a region is its whole buffer."""
    return all(
        tile_ir.static(r.min) == 0 and tile_ir.static(r.extent) == tile_ir.static(size)
        for r, size in zip(region.region, region.source.ty.shape)
    )


def whole_fragment(region: Any) -> bool:
    """Whether a region is a whole fragment."""
    return is_fragment(region.source) and is_whole(region)


def static_shape(buffer: Any) -> tuple[int, ...] | None:
    sizes = [tile_ir.static(s) for s in buffer.ty.shape]
    return None if any(s is None for s in sizes) else tuple(int(s or 0) for s in sizes)
