"""What one iteration of a loop hands on to the next: sums of products, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.passes.lower_tile_ops import is_tile_operator
from tile_compiler.simt.operators.nests import is_global, is_whole, static_shape, whole_fragment
from tile_compiler.simt.pipeline_schedule import touched
from tilelang import ops
from tilelang.ir import tile_ir

SUMMABLE = ("float32", "int32", "uint32")


@dataclass(frozen=True)
class Carried:
    """The fragments that are `sums`: 0 before the loop, and named in it by products alone, which add to them. `fault`: what
    else goes from one iteration to the next, or out of the loop; "" if there is nothing."""

    sums: tuple[Any, ...] = ()
    fault: str = ""


def carried_state(before: list[Any], loop: tir.For, behind: list[Any], roots: Mapping[Any, Any]) -> Carried:
    """Of a loop between the statements `before` and `behind` it, at the kernel's level; `roots`: what views show.

    By data use alone: everything that an iteration writes and reads is written as a whole before it is read, in the same
    iteration, and again before it is read behind the loop.
    """
    written = {roots.get(b, b) for b in touched(loop.body)[1]}
    outside = next((b for b in written if is_global(b)), None)
    if outside is not None:
        return Carried(fault=f"{outside.name} is written in each step")
    shown = {*roots, *roots.values()}
    sums = tuple(b for b in sorted(written, key=lambda b: str(b.name)) if b not in shown and _is_sum(loop.body, b))
    if not sums:
        return Carried(fault="no product of it adds to a fragment that nothing else in the loop names")
    for tile in sums:
        if tile_ir.dtype_name(tile) not in SUMMABLE:
            return Carried(fault=f"{tile.name} is a sum in {tile_ir.dtype_name(tile)}")
        if not _starts_from_zero(before, tile):
            return Carried(fault=f"{tile.name} does not start from 0")
    if tile_ir.holds(loop.body, tir.While):
        return Carried(fault="a loop in it runs while a condition holds")
    anew = _Anew(written - set(sums), dict(roots), set(sums))
    fault = anew.follow(tile_ir.statements(loop.body), set())
    if fault:
        return Carried(fault=f"{fault} hangs on the step before")
    fault = anew.follow(behind, set())
    return Carried(fault=f"{fault} of the last step is used behind it") if fault else Carried(sums)


def _is_sum(body: Any, tile: Any) -> bool:
    """Whether a fragment is named by products that add to it, and by nothing else."""

    def without(node: tir.Evaluate) -> Any:
        op = ops.operator_of(node)
        adds = (
            isinstance(op, ops.Gemm)
            and op.c.source.same_as(tile)
            and whole_fragment(op.c)
            and tile_ir.static(op.clear_accum) == 0
            and not any(n.same_as(tile) for part in (op.a, op.b) for n in tile_ir.walk(part, ir.Var))
        )
        return tir.Evaluate(tir.const(0, "int32")) if adds else node

    rest = tile_ir.map_nodes(body, (tir.Evaluate, without))
    return not rest.same_as(body) and not _names(rest, tile)


def _names(node: Any, tile: Any) -> bool:
    return any(
        (n.buffer if isinstance(n, tir.BufferStore) else n).same_as(tile)
        for n in tile_ir.walk(node, ir.Var, tir.BufferStore)
    )


def _starts_from_zero(before: list[Any], tile: Any) -> bool:
    """Whether the last statement that names a tile sets it to 0 as a whole."""
    last = next((s for s in reversed(before) if not isinstance(s, tir.AllocBuffer) and _names(s, tile)), None)
    op = ops.operator_of(last)
    if not isinstance(op, ops.Fill) or not whole_fragment(op.dst):
        return False
    return isinstance(op.value, (tir.IntImm, tir.FloatImm)) and op.value.value == 0


@dataclass
class _Anew:
    """Whether what `state` names is written as a whole before it is read."""

    state: set[Any]
    roots: dict[Any, Any]
    sums: set[Any]
    free: set[Any] = field(default_factory=set)

    def follow(self, stmts: list[Any], made: set[Any]) -> str:
        """What statements read of the state that they have not `made`; "" if there is nothing."""
        for stmt in stmts:
            fault = self._statement(stmt, made)
            if fault:
                return fault
        return ""

    def _statement(self, stmt: Any, made: set[Any]) -> str:
        if isinstance(stmt, (tir.AllocBuffer, tir.DeclBuffer)):
            return ""
        if isinstance(stmt, tir.AttrStmt):
            return self.follow(tile_ir.statements(stmt.body), made)
        if isinstance(stmt, tir.IfThenElse):
            cases = [set(made), set(made)]
            fault = self._reads(stmt.condition, made) or self.follow(tile_ir.statements(stmt.then_case), cases[0])
            if not fault and stmt.else_case is not None:
                fault = self.follow(tile_ir.statements(stmt.else_case), cases[1])
            made |= cases[0] & cases[1]
            return fault
        if isinstance(stmt, tir.For) and tile_ir.as_parallel(stmt) is None:
            inside = set(made)
            fault = self._reads(stmt.extent, made) or self.follow(tile_ir.statements(stmt.body), inside)
            if (tile_ir.static(stmt.extent) or 0) > 0:
                made |= inside
            return fault
        fault = self._reads(stmt, made)
        made |= {b for b in map(self._whole, self._written(stmt)) if b is not None}
        return fault

    def _reads(self, node: Any, made: set[Any]) -> str:
        stmt = node if isinstance(node, tir.Stmt) else tir.Evaluate(node)
        read = {self.roots.get(b, b) for b in touched(stmt)[0]} & self.state - made
        return ", ".join(sorted(str(b.name) for b in read))

    def _whole(self, buffer: Any) -> Any:
        return buffer if buffer in self.state else None

    def _written(self, stmt: Any) -> list[Any]:
        """The buffers that a statement writes as a whole."""
        if is_tile_operator(stmt):
            return [r.source for r in ops.parse(stmt.value).writes() if is_whole(r)]
        if isinstance(stmt, tir.BufferStore):
            return [stmt.buffer] if static_shape(stmt.buffer) == (1,) else []
        nest = tile_ir.as_parallel(stmt)
        if nest is None:
            return []
        stores = [s for s in tile_ir.statements(nest.body) if isinstance(s, tir.BufferStore)]
        return [s.buffer for s in stores if _covers(s, nest)]


def _covers(store: tir.BufferStore, nest: tile_ir.ParallelNest) -> bool:
    """Whether the iterations of a nest store each element of a buffer."""
    own = [tile_ir.static(e) for e in nest.extents]
    same = len(store.indices) == len(nest.loop_vars) and all(
        i.same_as(v) for i, v in zip(store.indices, nest.loop_vars)
    )
    return same and static_shape(store.buffer) == tuple(own)
