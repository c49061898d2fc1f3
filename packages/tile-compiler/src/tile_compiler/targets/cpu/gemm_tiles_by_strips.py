"""GEMM in tile registers by strips of A, which lies in a tensor: of the rows of a block so much along K is copied that the first
cache holds it beside a panel of B as deep, and meets all panels; the next strip is fetched meanwhile.

Where A lies its rows are often a power of two apart, so that those of a block share few sets of that cache and leave it before
the next panel reads them; and a block of 1024 elements along K fills it, with nothing left for B.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tvm import tirx as tir
from tvm.ir import prim

from tilelang.ir import tile_ir

from .ahead import LINE, FetchedColumns, FetchedRows
from .counts import index, loop_of, loop_within
from .flatten import storage_bytes
from .gemm_operands import GemmSpec, Operand, Prepared, Stmt
from .gemm_tiles_in_place import BLOCK, Place, Steps, TilesOfTensors

#: Steps of a strip at most, each of a line of each row. 1024x1024x1024 by 512 columns in turns with other orders (a program of
#: intrinsics outside of the repository), ms, by 4, 8 and 16 steps: -, 1.38, 1.68; 2048x2048x2048 by 256 13.6, 13.0, 14.7.
STEPS = 8
#: Columns that pay for the copy.
COLUMNS = 128
#: Rows so many bytes, or a multiple, apart share sets of the cache; elements along K up to which other rows are read in place: a
#: matrix that was turned, 1024x512x1024, 1.09 of torch's speed so, by strips 0.92.
SHARED, LEAST_DEPTH = 1024, 512
#: The same of C: 128x1024x4096 with bias by 128 columns, 512 bytes apart, 1.38 ms, where sums are added up there 1.49.
SHARED_BY_C = 512


def by_strips(spec: GemmSpec) -> bool:
    """Whether a product in tile registers is made so: not one of bytes, of which a row is half as long (512x512x512 T 1.41 of
    torch's speed in place, by strips 1.30, 300x768x768 T 1.03, 0.89, but 256x4096x4096 T 1.01, 1.11)."""
    a = spec.a
    if not a.in_tensor or spec.n < COLUMNS or storage_bytes(a.dtype) == 1:
        return False
    apart = a.knows_stride(a.row_dim) and a.stride(a.row_dim) * storage_bytes(a.dtype) % SHARED != 0
    return not (apart and spec.k <= LEAST_DEPTH)


@dataclass(frozen=True)
class Strip:
    """Number `part` along K of the strips of block `row` of rows, which has so many (None: all): its first step, and how many."""

    row: Any
    rows: Any
    part: Any
    first: Any
    steps: Any


class Strips(TilesOfTensors):
    """A in a tensor, B and C there or on chip."""

    @cached_property
    def most(self) -> int:
        """Strips along K."""
        return -(-self.spec.k // (STEPS * self.step))

    @cached_property
    def steps(self) -> int:
        """Steps of a strip: parts of K as even as whole ones allow."""
        return -(-self.spec.k // (self.most * self.step))

    @cached_property
    def parts(self) -> Any:
        """Strips along K that are there: one at least, of zeros where K is."""
        if self.limits[2] is None:
            return index(self.most)
        return tir.max(_ceil(self.elements, self.steps * self.step), index(1))

    @property
    def at_once(self) -> bool:
        """So are those of several strips, which are added up beside each other, and not rows of C apart, where these would share
        sets of the cache."""
        return super().at_once or (self.most > 1 and self.spec.c.row_stride * self.op.unit_bytes % SHARED_BY_C == 0)

    @cached_property
    def copy(self) -> Operand:
        """A strip. Rows a power of two apart would share sets of the cache."""
        apart = LINE * self.op.group // self.op.unit_bytes
        shape = self.high, self.steps * self.step + apart
        return Operand(self.spec.scratch(self.op.a, shape), (index(0), index(0)), 0, 1)

    def prepare_c(self) -> tuple[list[Stmt], Operand, list[Stmt]]:
        """Of a C in a tensor the sums of a block; of all panels where several strips are added up in them."""
        if not self.at_once:
            return super().prepare_c()
        panels = -(-self.spec.n // self.width) if self.most > 1 else 1
        return [], Operand(self.spec.scratch(self.op.acc, (panels * BLOCK, BLOCK)), (index(0), index(0)), 0, 1), []

    def products(self, given: Prepared) -> list[Stmt]:
        def strip(row: Any, part: Any) -> Strip:
            left = self.elements - part * (self.steps * self.step)
            steps = tir.max(tir.min(_ceil(left, self.step), index(self.steps)), index(1))
            return Strip(row, self.rows(row), part, part * self.steps, steps)

        def of_rows(row: Any) -> Stmt:
            if self.most == 1:
                return self.meets(given, strip(row, index(0)))
            return loop_of(self.parts, lambda part: self.meets(given, strip(row, part)))

        before = []
        if self.limits[2] is not None:
            before = self.completed(given, tir.max(_ceil(self.elements, self.step) - index(1), index(0)))
        return [*before, loop_within(-(-self.spec.m // self.high), self.limits[0], 0, self.high, of_rows)]

    def meets(self, given: Prepared, strip: Strip) -> Stmt:
        """A strip, copied, by all panels."""
        clear = tir.const(1, "int32") if self.at_once else given.clear
        clear = clear if self.most == 1 else clear * prim.Cast("int32", prim.EQ(strip.part, index(0)))
        steps = Steps(strip.first, strip.steps, clear)

        def of_panel(panel: Any) -> Stmt:
            place = (panel * BLOCK if self.most > 1 else index(0), index(0))
            at = place if self.at_once else (strip.row * self.high, panel * self.width)

            def product(here: Place) -> Stmt:
                return self.kernel(given, (self.copy, index(0)), here, at, steps, self.fetched(strip, panel))

            stmt = self.block(product, strip.row, strip.rows, panel)
            if not self.at_once:
                return stmt
            left = self.left(given.c, strip.row, panel, strip.rows, place[0])
            last = prim.EQ(strip.part + index(1), self.parts)
            return tile_ir.sequence([stmt, left if self.most == 1 else tir.IfThenElse(last, left, None)])

        panels = loop_within(-(-self.spec.n // self.width), self.limits[1], 0, self.width, of_panel)
        return tile_ir.sequence([self.copied(strip), self.of_shape(strip.rows, panels)])

    def copied(self, strip: Strip) -> Stmt:
        """The copy of a strip, with zeros that complete its last step."""
        a, size = self.spec.a, self.op.unit_bytes // self.op.group
        left = tir.max(self.elements - strip.first * self.step, index(0))
        source = a.address(strip.row * self.high, strip.first * self.step)
        rows = index(self.high) if strip.rows is None else strip.rows
        args = source, self.copy.address(index(0), index(0)), rows, a.any_stride(a.row_dim) * index(size)
        name = f"tl.tile_strip.{8 * size}.{self.steps}_{self.copy.row_stride * size}"
        return tir.Evaluate(tir.call_extern("void", name, *args, tir.min(left, index(self.steps * self.step))))

    def fetched(self, strip: Strip, panel: Any) -> tuple[FetchedRows, ...]:
        """A panel's share of the next strip, of the same rows or of the next ones: so many of its rows. Of a single block of
        rows, which meets all panels before long, nothing, unless the next round goes on with the next rows."""
        panels = -(-self.spec.n // self.width)
        single = self.spec.m <= self.high and self.spec.prepared is None
        if single or panels > self.high:
            return ()
        a, each = self.spec.a, -(-self.high // panels)
        same = prim.Cast("int64", strip.part + index(1) < self.parts)
        row = (strip.row + index(1) - same) * self.high + panel * each
        at = a.address(row, same * ((strip.first + self.steps) * self.step))
        stride = a.any_stride(a.row_dim) * index(self.op.unit_bytes // self.op.group)
        return (FetchedRows(FetchedColumns(each), at, stride),)


def _ceil(count: Any, size: int) -> Any:
    return tir.floordiv(count + index(size - 1), index(size))
