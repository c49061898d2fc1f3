"""GEMM in the tile registers of AMX: loops over blocks of up to 32 x 32 of C around `tile_kernels.py`.

While a block is computed, its share of the tiles that the next round of the loop around will load is fetched into the
caches: the products leave the memory idle, and the copies the products.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx as tir

from .ahead import Share
from .counts import index, loop
from .gemm_operands import Emitter, GemmSpec, Prepared, Stmt
from .instructions.tile_multiply import TILE, TileMultiply, TileShape
from .tile_kernels import TileKernel, configuration


class Tiles(Emitter):
    """Up to 2 x 2 tile registers of C. What is left of K after whole steps is one step of a smaller depth."""

    op: TileMultiply

    def __init__(self, spec: GemmSpec, op: TileMultiply) -> None:
        super().__init__(spec)
        self.op, self.lanes = op, TILE
        self.width = min(2, -(-spec.n // TILE)) * TILE

    def products(self, given: Prepared) -> list[Stmt]:
        high = 2 * TILE
        blocks, rest = divmod(self.spec.m, high)
        steps, last = divmod(self.groups, TILE)
        stmts = []
        for depth, count, group in ((TILE, steps, 0), (last, 1, steps * TILE)):
            for first, panels, cols in self.panels:
                for row, times, rows in ((0, blocks, high), (blocks, 1, rest)):
                    if count and depth and times and rows:
                        part = Part(TileShape(rows, cols, depth), (row, times), (first, panels), (group, count))
                        stmts += self.part(given, part)
        return stmts

    def part(self, given: Prepared, part: Part) -> list[Stmt]:
        """The loops over all blocks of one shape, between loading that shape and that of whole tiles."""
        a, c, unit = given.a, given.c, self.op.unit_bytes
        strides = a.row_stride * unit // self.op.group, given.b.row, c.row_stride * unit
        group, count = part.steps
        row, times = part.blocks
        first, panels = part.panels
        main = part.shape.full and (row, first, group) == (0, 0, 0)
        shares = [Share.of(tile, panels * times, count) for tile in self.spec.ahead] if main else []
        name = TileKernel(self.op.name, part.shape, *strides, tuple(share.lines for share in shares)).name
        clear = tir.const(0, "int32") if group else given.clear

        def block(panel: Any, row: Any) -> Stmt:
            number = panel * times + tir.truncdiv(row, index(2 * TILE))
            fetched = [x for part in shares for x in (part.of_block(number).address, part.tile.stride)]
            start = a.address(row, index(group * self.op.group))
            args = [start, given.b.at(panel, index(group)), c.address(row, panel * self.width)]
            return tir.Evaluate(tir.call_extern("void", name, *args, tir.const(count, "int64"), clear, *fetched))

        loops = loop(panels, lambda p: loop(times, lambda t: block(p + first, (t + row) * (2 * TILE))))
        return [loops] if part.shape.full else [_configure(part.shape), loops, _configure(TileShape())]


@dataclass(frozen=True)
class Part:
    """Blocks of one shape: (first, count) along M in blocks of 32, along N in panels, along K in groups and steps."""

    shape: TileShape
    blocks: tuple[int, int]
    panels: tuple[int, int]
    steps: tuple[int, int]


def _configure(shape: TileShape) -> Stmt:
    return tir.Evaluate(tir.call_extern("void", configuration(shape)))
