"""The tiles that a loop's next round reads, for statements that can fetch them into the caches meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.context import Ahead
from tile_compiler.ranges import reads_memory
from tile_compiler.rewrite import substitute
from tilelang import ops
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of


def next_tiles(loop: tir.For) -> dict[Any, Ahead]:
    """On-chip buffer -> the tile of a tensor that the next round of `loop` copies into it, where both are matrices; a tensor
    that a product may read in place -> the tile of its next round."""
    found: dict[Any, Ahead] = {}
    names: dict[Any, Any] = {}
    if loop.kind != tir.ForKind.SERIAL:
        return found
    for stmt in _of_each_round(loop.body):
        if isinstance(stmt, tir.Bind):
            names[stmt.var] = substitute(stmt.value, names)
        op = ops.operator_of(stmt)
        if isinstance(op, ops.Copy) and str(op.dst.source.scope()) not in tile_ir.GLOBAL:
            if (ahead := _tile_ahead(op.src, loop.loop_var, names)) is not None:
                found[op.dst.source] = ahead
        for operand in (op.a, op.b) if isinstance(op, ops.Gemm) else ():
            if (ahead := _tile_ahead(operand, loop.loop_var, names)) is not None:
                found[operand.source] = replace(ahead, in_place=True)
    return found


def _of_each_round(body: Any) -> Iterator[Any]:
    """Statements of a loop's body that a round runs once at most."""
    for stmt in tile_ir.statements(body):
        yield stmt
        if isinstance(stmt, tir.IfThenElse):
            for case in (stmt.then_case, stmt.else_case):
                yield from () if case is None else _of_each_round(case)


def _tile_ahead(region: Any, loop_var: Any, names: dict[Any, Any]) -> Ahead | None:
    """The region one round later, `names` standing for what a round binds them to; None for one that stays, whose place memory
    decides, that is on chip or has other than two dimensions, rows in one piece."""
    buffer, rank = region.source, len(region.region)
    moving = [d for d, r in enumerate(region.region) if tile_ir.static(r.extent) != 1]
    extents = [n for d in moving if (n := tile_ir.static(region.region[d].extent)) is not None]
    strides, bits = buffer.ty.strides, dtype_of(str(buffer.ty.dtype)).bits
    plain = not len(strides) or tile_ir.static(strides[-1]) == 1
    if len(moving) != 2 or len(extents) != 2 or moving[1] != rank - 1 or not plain or bits % 8:
        return None
    mins = [substitute(m, names) for m in tile_ir.mins(region)]
    stays = tile_ir.free_of(mins, [loop_var])
    if str(buffer.scope()) not in tile_ir.GLOBAL or stays or any(reads_memory(m) for m in mins):
        return None

    def wide(value: Any) -> Any:
        return prim.Cast("int64", value)

    following = [wide(substitute(m, {loop_var: loop_var + 1})) for m in mins]
    stride = wide(strides[moving[0]]) if len(strides) else tir.const(1, "int64")
    for extent in buffer.ty.shape[moving[0] + 1 :] if not len(strides) else ():
        stride = stride * wide(extent)

    def address(row: Any, byte: Any) -> Any:
        indices = list(following)
        indices[moving[0]] += row
        indices[moving[1]] += tir.truncdiv(byte, tir.const(bits // 8, "int64"))
        last = [wide(size) - 1 for size in buffer.ty.shape]
        return tir.address_of(tir.BufferLoad(buffer, [tir.min(i, end) for i, end in zip(indices, last)]))

    return Ahead(address, stride * (bits // 8), extents[0], extents[1] * bits // 8)
