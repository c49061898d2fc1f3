"""A tile from registers to shared memory by `stmatrix`, where the fragment is made of its matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.instructions import MatrixMove, matrix_moves
from tile_compiler.rewrite import substitute
from tile_compiler.simt.distribution import Distribution
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.matrix_corners import REGISTER_BITS, ROW_BYTES, corners
from tile_compiler.simt.operators.nests import address, is_shared, local, run, store, unrolled
from tile_compiler.simt.terms import is_formula, to_tir
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import IndexExpr, placeholders
from tilelang.layout.fit import expr_of_values

MOST = 4  # matrices of one instruction


@dataclass
class MatrixStore:
    """`s[i, j] = value(i, j)` for every (i, j) of `loop`, by `stmatrix`.

    `value(step)` is the value that a thread stores in a step. `width(axis)` is how many neighbours along a loop axis
    one access of s may move.
    """

    statement: tir.BufferStore
    loop: Distribution
    loop_vars: tuple[Any, ...]
    value: Callable[[Any], Any]
    width: Callable[[int], int]
    low: Lowering

    def __post_init__(self) -> None:
        self.bits = dtype_of(tile_ir.dtype_name(self.statement.buffer)).bits
        self.per = REGISTER_BITS // self.bits

    def lower(self) -> Any | None:
        """The statements; None where `stmatrix` does not fit."""
        loop, rank = self.loop, len(self.loop.shape)
        whole = loop.replicas == 1 and loop.is_full and rank > 1
        if not whole or not is_shared(self.statement.buffer) or self.bits < 8:
            return None
        moves = [m for m in matrix_moves() if m.store and m.count == MOST and m.runs_on(self.low.ctx.arch.name)]
        for move in (m for m in moves if loop.threads % m.lanes == 0):
            for column in (a for a in reversed(range(rank)) if self.width(a) * self.bits // 8 >= ROW_BYTES):
                for row in (a for a in reversed(range(rank)) if a != column):
                    found = self._corners(move, row, column)
                    if found is not None:
                        return self._stores(move, row, column, found)
        return None

    def _corners(self, move: MatrixMove, row: int, column: int) -> list[IndexExpr] | None:
        """For each loop axis its index at the corner of the matrix, by wave and register; None if there is none."""
        places = np.stack(np.unravel_index(self.loop.held, self.loop.shape))  # axis, thread, step
        waves = places.reshape(len(places), -1, move.lanes, self.loop.steps)
        table = np.empty((len(places), waves.shape[1], self.loop.steps // self.per), np.int64)
        for w in range(waves.shape[1]):
            found = corners(move, waves[row, w], waves[column, w], self.bits)
            if found is None:
                return None
            for axis in range(len(places)):
                if axis in (row, column):
                    table[axis, w] = found[:, (row, column).index(axis)]
                    continue
                same = waves[axis, w].reshape(move.lanes, -1, self.per)
                if (same != same[:1, :, :1]).any():
                    return None
                table[axis, w] = same[0, :, 0]
        exprs = [expr_of_values(t, placeholders(2)) for t in table]
        return exprs if all(is_formula(e) for e in exprs) else None

    def _stores(self, move: MatrixMove, row: int, column: int, found: list[IndexExpr]) -> Any | None:
        """A loop over groups of matrices: convert into a part, store the part."""
        low, buffer = self.low, self.statement.buffer
        registers = self.loop.steps // self.per
        count = next(c for c in (MOST, 2, 1) if registers % c == 0)
        lane, wave = low.tx % move.lanes, low.tx // move.lanes

        def place(group: Any) -> list[Any]:
            """The row of a matrix whose address this lane gives."""
            number = low.simplify(group * count + lane // 8 % count)
            indices = [to_tir(e, {"i": wave, "j": number}) for e in found]
            indices[row] = indices[row] + lane % 8
            values = dict(zip(self.loop_vars, (low.simplify(i) for i in indices)))
            return [low.simplify(substitute(i, values)) for i in self.statement.indices]

        any_group = tir.Var("g", "int32")
        low.ranges.iterate(any_group, 0, registers // count)
        if low.ranges.outside(buffer, place(any_group)):
            return None  # the instruction has no predicate
        part = local(count * self.per, tile_ir.dtype_name(buffer), f"{buffer.name}_part")
        low.temporaries.append(tir.AllocBuffer(part))
        low.ctx.report.note(low.span, f"T.copy: stmatrix of {count} matrices{', transposed' * move.transposed}")

        def one(group: Any) -> Any:
            if isinstance(group, ir.Var):
                low.ranges.iterate(group, 0, registers // count)
            first = group * (count * self.per)
            fill = unrolled("u", count * self.per, lambda u: store(part, self.value(low.simplify(first + u)), u))
            target = tir.address_of(tir.BufferLoad(buffer, place(group)))
            name = f"tl::stmatrix_x{count}{'_trans' if move.transposed else ''}"
            return tile_ir.sequence([fill, run(name, target, address(part, 0), span=low.span)])

        return unrolled("g", registers // count, one, low.span)
