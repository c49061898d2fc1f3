"""Products whose right operand is one tile in all rounds of a loop: what the first round makes of it serves the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.ranges import reads_memory
from tile_compiler.rewrite import is_call, substitute
from tilelang import ops
from tilelang.ir import tile_ir


@dataclass(frozen=True)
class Stays:
    """What may have another value in each round: the loop's variable and those that it binds; and whether this is a later round
    than the first."""

    bound: frozenset[Any]
    later: Any

    def keeps(self, value: Any) -> bool:
        """Whether an expression has the same value in all rounds."""
        return bool(tile_ir.free_of(value, self.bound)) and not reads_memory(value)


def staying_tiles(loop: tir.For, roots: dict[Any, Any]) -> dict[Any, Stays]:
    """Statements of `loop`, products that each round runs, whose right operand is a tile of a tensor that no round moves or
    writes. `roots`: what views are views of."""
    found: dict[Any, Stays] = {}
    leaves = any(is_call(n, "tirx.break_loop", "tirx.continue_loop") for n in tile_ir.walk(loop.body, ir.Call))
    if loop.kind != tir.ForKind.SERIAL or leaves:
        return found
    written = {store.buffer for store in tile_ir.walk(loop.body, tir.BufferStore)}
    bound: set[Any] = {loop.loop_var}
    for call in tile_ir.walk(loop.body, ir.Call):
        if is_call(call, "tl.atomic_elem", "tirx.call_extern"):
            written.update(load.source for load in tile_ir.walk(call, ir.TensorLoad))
    for node in tile_ir.walk(loop.body, tir.Evaluate, tir.Bind, tir.For):
        if isinstance(node, tir.Bind):
            bound.add(node.var)
        elif isinstance(node, tir.For):
            bound.add(node.loop_var)
        elif (op := ops.operator_of(node)) is not None:
            written.update(region.source for region in op.writes())
        elif not is_call(node.value, "tirx.assume"):  # whatever it calls may write what it is given
            written.update(load.source for load in tile_ir.walk(node, ir.TensorLoad))
    written = {roots.get(buffer, buffer) for buffer in written}
    names: dict[Any, Any] = {}
    for stmt in tile_ir.statements(loop.body):
        if isinstance(stmt, tir.Bind):
            names[stmt.var] = substitute(stmt.value, names)
        op = ops.operator_of(stmt)
        if not isinstance(op, ops.Gemm) or str(op.b.source.scope()) not in tile_ir.GLOBAL:
            continue
        if roots.get(op.b.source, op.b.source) in written:
            continue
        stays = Stays(frozenset(bound), loop.loop_var > loop.min)
        if all(stays.keeps(substitute(m, names)) for m in tile_ir.mins(op.b)):
            found[stmt] = stays
    return found
