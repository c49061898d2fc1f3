"""How much a traced function asks for: tiles and their bytes, products, traffic, blocks. Read off, nothing is lowered.

The autotuner prunes and orders configurations by it (`tilelang/autotuner/model.py`). Counts are of one block in the
middle of the grid, which under causal masks and the like has the average work; conditions count as taken.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.ops import Copy, Gemm, operator_of


@dataclass
class Tile:
    """An on-chip buffer of a block. `versions`: how many the pipelined loop that fills it keeps at once."""

    name: str
    scope: str  # shared, fragment or private
    bits: int  # of an element
    elements: int
    versions: int = 1

    @property
    def bytes(self) -> int:
        return -(-self.elements * self.bits // 8) * self.versions


@dataclass(frozen=True)
class Product:
    """`times` tile products of (m, k) with (k, n); operands named by tile, types by element."""

    m: int
    n: int
    k: int
    times: int
    dtype: str
    bits: int
    operands: tuple[str, str, str]  # tiles a, b, c
    policy: int = 0

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.times


@dataclass
class LaunchWork:
    """One kernel of the function. `blocks`, `threads` are None where a call or the target decides."""

    blocks: int | None
    threads: int | None
    tiles: dict[str, Tile] = field(default_factory=dict)
    products: list[Product] = field(default_factory=list)
    together: list[tuple[str, ...]] = field(default_factory=list)  # shared tiles in use in one loop
    steps: int = 0  # of pipelined loops
    stages: int = 0
    read_bytes: int = 0  # from global memory, by tile operators and loops
    written_bytes: int = 0


@dataclass(frozen=True)
class TileWork:
    """The kernels of a function and the bytes of its tensors (None where a call decides)."""

    launches: tuple[LaunchWork, ...]
    tensor_bytes: int | None


def tile_work(func: Any, sizes: Mapping[str, int] | None = None) -> TileWork:
    """What `func` asks for; `sizes` gives dynamic dimensions their values by name."""
    known = dict(sizes or {})
    env = {v: known[str(v.name)] for v in _free_variables(func) if str(v.name) in known}
    tensors = [p for p in func.params if tile_ir.is_buffer(p)]
    each = [_bytes(b, env) for b in tensors]
    launches = tuple(_launch(kernel, dict(env)) for kernel in tile_ir.kernels(func))
    return TileWork(launches, None if None in each else sum(b or 0 for b in each))


def _free_variables(func: Any) -> list[Any]:
    extents = [e for p in func.params if tile_ir.is_buffer(p) for e in p.ty.shape]
    return [v for e in extents for v in tile_ir.walk(e) if isinstance(v, ir.Var)]


def _bytes(buffer: Any, env: dict[Any, int]) -> int | None:
    extents = [value_of(e, env) for e in buffer.ty.shape]
    if None in extents:
        return None
    return -(-math.prod(e or 0 for e in extents) * dtype_of(tile_ir.dtype_name(buffer)).bits // 8)


def value_of(expr: Any, env: Mapping[Any, int]) -> int | None:
    """An integer expression with the values of `env`, or None."""
    found = tile_ir.static(expr)
    if found is not None:
        return found
    values = {v: tir.const(n, str(v.ty)) for v, n in env.items()}
    return tile_ir.static(tile_ir.analyzer().simplify(tile_ir.substitute(expr, values)))


def _launch(kernel: tile_ir.Kernel, env: dict[Any, int]) -> LaunchWork:
    extents = [value_of(e, env) for _, e in kernel.grid]
    env |= {v: e // 2 for (v, _), e in zip(kernel.grid, extents) if e is not None}
    blocks = None if None in extents else math.prod(e or 0 for e in extents)
    work = LaunchWork(blocks, kernel.num_threads)
    _Counter(work).statement(kernel.body, 1, env)
    _note_versions(kernel, work)
    return work


class _Counter:
    """Adds up what statements do, `times` each."""

    def __init__(self, work: LaunchWork) -> None:
        self.work = work

    def statement(self, node: Any, times: int, env: dict[Any, int]) -> None:
        if isinstance(node, tir.SeqStmt):
            for part in node.seq:
                self.statement(part, times, env)
        elif isinstance(node, tir.For):
            self._loop(node, times, env)
        elif isinstance(node, tir.IfThenElse):
            self.statement(node.then_case, times, env)
            if node.else_case is not None:
                self.statement(node.else_case, times, env)
        elif isinstance(node, (tir.AttrStmt, tir.While)):
            self.statement(node.body, times, env)
        elif isinstance(node, tir.AllocBuffer):
            self._allocation(node.buffer)
        elif (operator := operator_of(node)) is not None:
            self._operator(operator, times, env)
        else:
            self._elements(node, times)

    def _loop(self, node: Any, times: int, env: dict[Any, int]) -> None:
        trips = value_of(node.extent, env)
        trips = 1 if trips is None else max(0, trips)
        if tile_ir.PIPELINED in (node.annotations or {}):
            self.work.steps += times * trips
            self.work.stages = max(self.work.stages, int(tile_ir.plain(node.annotations[tile_ir.PIPELINED])))
        low = value_of(node.min, env) or 0
        self.statement(node.body, times * trips, {**env, node.loop_var: low + trips // 2})

    def _allocation(self, buffer: Any) -> None:
        scope = str(buffer.scope())
        kind = "shared" if scope in tile_ir.SHARED else "fragment" if scope in tile_ir.FRAGMENT else "private"
        extents = [tile_ir.static(e) for e in buffer.ty.shape]
        if None not in extents and scope not in tile_ir.GLOBAL:
            bits = dtype_of(tile_ir.dtype_name(buffer)).bits
            self.work.tiles[str(buffer.name)] = Tile(str(buffer.name), kind, bits, math.prod(e or 0 for e in extents))

    def _operator(self, op: Any, times: int, env: dict[Any, int]) -> None:
        if isinstance(op, Gemm):
            dtype = tile_ir.dtype_name(op.a.source)
            names = (str(op.a.source.name), str(op.b.source.name), str(op.c.source.name))
            self.work.products.append(
                Product(op.m, op.n, op.k, times, dtype, dtype_of(dtype).bits, names, int(op.policy))
            )
        for region in op.reads():
            self.work.read_bytes += times * _moved(region, env)
        for region in op.writes():
            self.work.written_bytes += times * _moved(region, env)

    def _elements(self, node: Any, times: int) -> None:
        # Calls that are no tile operators (atomics on an element, barriers) count by the elements that they name.
        for inner in tile_ir.walk(node):
            if isinstance(inner, ir.TensorLoad) and str(inner.source.scope()) in tile_ir.GLOBAL:
                self.work.read_bytes += times * dtype_of(tile_ir.dtype_name(inner.source)).bits // 8
        if isinstance(node, tir.BufferStore) and str(node.buffer.scope()) in tile_ir.GLOBAL:
            self.work.written_bytes += times * dtype_of(tile_ir.dtype_name(node.buffer)).bits // 8


def _moved(region: Any, env: dict[Any, int]) -> int:
    """Bytes of a region of global memory; 0 for tiles."""
    if not hasattr(region, "source") or str(region.source.scope()) not in tile_ir.GLOBAL:
        return 0
    extents = [value_of(r.extent, env) for r in region.region]
    return math.prod(e or 0 for e in extents) * dtype_of(tile_ir.dtype_name(region.source)).bits // 8


def _note_versions(kernel: tile_ir.Kernel, work: LaunchWork) -> None:
    """Which shared tiles a pipelined loop keeps together, and in how many versions.

    A tile has `num_stages` versions if one copy from global memory fills it and only that loop uses it: otherwise the
    pipeline may leave it alone, and we count one.
    """
    mentions = _mentions(kernel.body)
    for loop in tile_ir.walk(kernel.body):
        if not isinstance(loop, tir.For) or tile_ir.PIPELINED not in (loop.annotations or {}):
            continue
        inside = _mentions(loop.body)
        stages = int(tile_ir.plain(loop.annotations[tile_ir.PIPELINED]))
        filled: list[str] = []
        for node in tile_ir.walk(loop.body):
            op = operator_of(node)
            if isinstance(op, Copy) and str(op.src.source.scope()) in tile_ir.GLOBAL:
                filled.append(str(op.dst.source.name))
        shared = [n for n in inside if n in work.tiles and work.tiles[n].scope == "shared"]
        for name in shared:
            if filled.count(name) == 1 and inside[name] == mentions[name]:
                work.tiles[name].versions = max(1, stages)
        work.together.append(tuple(shared))


def _mentions(body: Any) -> dict[str, int]:
    """How many operands and accesses name each buffer."""
    found: dict[str, int] = {}
    for node in tile_ir.walk(body):
        buffer = node.buffer if isinstance(node, tir.BufferStore) else getattr(node, "source", None)
        if buffer is not None and tile_ir.is_buffer(buffer):
            found[str(buffer.name)] = found.get(str(buffer.name), 0) + 1
    return found
