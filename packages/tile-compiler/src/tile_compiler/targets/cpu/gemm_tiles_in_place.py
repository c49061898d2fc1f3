"""GEMM in tile registers of matrices of bfloat16 and of bytes that lie in tensors.

A is read where it lies, its last step, as far as it is there, from a copy that zeros complete; of B panels are made from where
it lies; a C in a tensor gets each block's sums, rounded, while they are in the first cache. Each block of rows meets all panels
while the rows are in the first cache, and blocks at an edge are as large as what is there: the shape of the registers is loaded
for the rows, and again for columns that fill no whole tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx as tir
from tvm.ir import prim

from tilelang.ir import tile_ir

from .ahead import FetchedRows
from .counts import at_most, index, loop_within
from .features import CpuFeatures
from .flatten import storage_bytes
from .gemm_operands import Operand, Prepared, Stmt
from .gemm_tiles import Tiles
from .instructions.multiply_accumulate import MultiplyAccumulate
from .instructions.tile_multiply import TDPBF16PS, TILE, TileMultiply, TileShape
from .tile_kernels import EDGE, TileKernel

#: Panels of a row-major B that one walk along its rows makes: 64 bytes of a row for each, so that memory is read in long pieces.
#: Xeon with AMX, ms, by 4, 8, 16, 32 panels: 32x4096x4096 by 512 columns 3.48, 3.09, 3.15, by 2048 columns -, -, 2.93, 2.70,
#: 16x4096x4096 -, -, 2.55, 2.40 (torch 2.95, 3.05).
WALKS = (32, 8, 4)
#: Rows and columns of a block.
BLOCK = 2 * TILE


def suits(op: MultiplyAccumulate | TileMultiply, depth: int) -> bool:
    """Whether tiles of so many elements along K may lie in tensors: of whole steps."""
    return isinstance(op, TileMultiply) and depth % (TILE * op.group) == 0


def leaves_registers(op: MultiplyAccumulate | TileMultiply, c: str, features: CpuFeatures) -> bool:
    """Whether a C of this type may lie in a tensor: each block's sums, which may be rounded, become its elements at once."""
    return op is TDPBF16PS and (c == "float32" or (c == "bfloat16" and features.bf16))


@dataclass(frozen=True)
class Depth:
    """Along K: whole steps, and elements of one that is `partial`, a condition, whose rows of A lie in the copy `a`."""

    whole: Any
    rest: Any
    partial: Any
    a: Operand


@dataclass(frozen=True)
class Place:
    """Block (row, panel) of C, in blocks, and the size of its tiles."""

    row: Any
    panel: Any
    shape: TileShape


@dataclass(frozen=True)
class Steps:
    """So many steps along K from the first one on; `clear`, int32: whether they make the sums, or are added to them."""

    first: Any
    count: Any
    clear: Any


class TilesOfTensors(Tiles):
    """A or B, or both, in tensors, C on chip or in a tensor."""

    walks, apart = WALKS, 1

    @property
    def step(self) -> int:
        """Elements of a step along K, and of its copy's rows."""
        return TILE * self.op.group

    @property
    def high(self) -> int:
        """Rows of a block."""
        return TILE * min(2, -(-self.spec.m // TILE))

    def prepare_a(self) -> tuple[list[Stmt], Operand]:
        return ([], self.spec.a) if self.spec.a.in_tensor else super().prepare_a()

    @property
    def at_once(self) -> bool:
        """Whether each block of C leaves the registers for a tensor."""
        return self.spec.c.in_tensor

    def prepare_c(self) -> tuple[list[Stmt], Operand, list[Stmt]]:
        """Of a C in a tensor the sums of one block."""
        if not self.at_once:
            return super().prepare_c()
        return [], Operand(self.spec.scratch(self.op.acc, (BLOCK, BLOCK)), (index(0), index(0)), 0, 1), []

    def products(self, given: Prepared) -> list[Stmt]:
        """Nothing is fetched ahead: it costs 3 to 10 % where the registers are fast (docs/performance/cpu.md)."""
        spec, (m_limit, n_limit, k_limit) = self.spec, self.limits
        blocks, panels = -(-spec.m // self.high), -(-spec.n // self.width)
        depth = None if k_limit is None else self.depth(given.a)
        given = replace(given, clear=tir.const(1, "int32")) if self.at_once else given

        def of_block(row: Any, rows: Any, panel: Any) -> Stmt:
            stmt = self.block(lambda here: self.product(given, depth, here), row, rows, panel)
            return tile_ir.sequence([stmt, self.left(given.c, row, panel, rows)]) if self.at_once else stmt

        def strip(row: Any) -> Stmt:
            rows = self.rows(row)
            stmt = loop_within(panels, n_limit, 0, self.width, lambda panel: of_block(row, rows, panel))
            return self.of_shape(rows, stmt)

        before = [] if depth is None else self.last_step(given, depth)
        return [*before, loop_within(blocks, m_limit, 0, self.high, strip)]

    def rows(self, row: Any) -> Any:
        """How many rows block `row` of them has; None: all."""
        return _left(row * self.high, self.high, self.spec.m, self.limits[0])

    def of_shape(self, rows: Any, stmt: Stmt) -> Stmt:
        """`stmt`, which is of blocks of so many rows."""
        return stmt if rows is None else _shaped(rows, (rows, BLOCK), stmt, (BLOCK, BLOCK))

    def columns(self, panel: Any) -> Any:
        """The same of the columns of a panel."""
        return _left(panel * self.width, self.width, self.spec.n, self.limits[1])

    def block(self, product: Callable[[Place], Stmt], row: Any, rows: Any, panel: Any) -> Stmt:
        """The product of block (row, panel), of so many rows (None: all), by one or two tiles each way."""
        columns = self.columns(panel)

        def by(high: int, wide: int) -> Stmt:
            return product(Place(row, panel, TileShape(high, wide)))

        def either(count: Any, most: int, one: Stmt, two: Stmt) -> Stmt:
            return two if most == TILE or count is None else tir.IfThenElse(count <= index(TILE), one, two)

        of_rows = [either(columns, self.width, by(tall, TILE), by(tall, self.width)) for tall in (TILE, self.high)]
        stmt = either(rows, self.high, *of_rows)
        high = BLOCK if rows is None else rows
        if columns is None:
            return stmt
        # Rows that fill whole tiles have had the shape of whole blocks loaded, and leave it to what follows.
        uneven = None if rows is None else tir.floormod(rows, index(TILE)) > index(0)
        after = BLOCK if rows is None else tir.Select(uneven, rows, index(BLOCK))
        return _shaped(columns, (high, columns), stmt, (after, BLOCK))

    def left(self, sums: Operand, row: Any, panel: Any, rows: Any, first: Any = 0) -> Stmt:
        """Block (row, panel) of C, of so many rows (None: all), becomes these sums, from row `first` on, or they are added to
        it."""
        c, zero, columns = self.spec.c, index(0), self.columns(panel)
        sizes = (index(size) if there is None else there for there, size in ((rows, self.high), (columns, self.width)))
        places = sums.address(zero + first, zero), c.address(row * self.high, panel * self.width)
        args = *places, *sizes, c.any_stride(c.row_dim) * index(storage_bytes(c.dtype))
        become, add = (
            tir.Evaluate(tir.call_extern("void", f"tl.tile_leave.{c.dtype}.{how}", *args)) for how in ("set", "add")
        )
        return tir.IfThenElse(prim.EQ(self.clear, tir.const(0, "int32")), add, become)

    def depth(self, a: Operand) -> Depth:
        whole = tir.floordiv(self.elements, index(self.step))
        rest = tir.floormod(self.elements, index(self.step))
        copy = Operand(self.spec.scratch(self.op.a, (self.spec.m, self.step)), (index(0), index(0)), 0, 1)
        return Depth(whole, rest, tir.Or(rest > index(0), prim.EQ(self.elements, index(0))), copy)

    def last_step(self, given: Prepared, depth: Depth) -> list[Stmt]:
        """The copy of A's last step where it is partial, and zeros in the panels that complete it."""
        zero, a, size = index(0), given.a, self.op.unit_bytes // self.op.group
        pitch = a.any_stride(a.row_dim) * index(size)
        rows = at_most(self.spec.m, self.limits[0])
        args = a.address(zero, depth.whole * self.step), depth.a.address(zero, zero), rows, pitch, depth.rest
        stmts = [tir.Evaluate(tir.call_extern("void", f"tl.tile_rest.{8 * size}", *args))]
        stmts += self.completed(given, depth.whole)
        return [tir.IfThenElse(depth.partial, tile_ir.sequence(stmts), None)]

    def completed(self, given: Prepared, step: Any) -> list[Stmt]:
        """Zeros in the panels of a B in a tensor, after the last element in the step that it lies in."""
        if not self.spec.b.in_tensor:
            return []
        first = tir.floordiv(self.elements + index(self.op.group - 1), index(self.op.group))
        lines = ((step + index(1)) * TILE - first) * index(self.width * self.op.unit_bytes // 64)

        def complete(panel: Any) -> Stmt:
            return tir.Evaluate(tir.call_extern("void", "tl.tile_zeros.any", given.b.at(panel, first), lines))

        return [loop_within(-(-self.spec.n // self.width), self.limits[1], 0, self.width, complete)]

    def product(self, given: Prepared, depth: Depth | None, here: Place) -> Stmt:
        """A block over all of K: whole steps, then the partial one."""
        if depth is None:
            return self.of_rows(given, given.a, here, index(0), index(self.spec.k // self.step), given.clear)
        clear = given.clear * prim.Cast("int32", prim.EQ(depth.whole, index(0)))
        whole = self.of_rows(given, given.a, here, index(0), depth.whole, given.clear)
        last = self.of_rows(given, depth.a, here, depth.whole, index(1), clear)
        parts = (depth.whole > index(0), whole), (depth.partial, last)
        return tile_ir.sequence([tir.IfThenElse(there, part, None) for there, part in parts])

    def of_rows(self, given: Prepared, a: Operand, here: Place, step: Any, steps: Any, clear: Any) -> Stmt:
        """So many steps of a block, of which `step` is the first in the panel."""
        first, zero = here.row * self.high, index(0)
        at = (zero, zero) if self.at_once else (first, here.panel * self.width)
        return self.kernel(given, (a, first), here, at, Steps(step, steps, clear))

    def kernel(
        self,
        given: Prepared,
        rows: tuple[Operand, Any],
        here: Place,
        at: tuple[Any, Any],
        k: Steps,
        ahead: tuple[FetchedRows, ...] = (),
    ) -> Stmt:
        """`rows`: A and its first row; `at`: the sums' first element in `given.c`."""
        (a, first), c, size = rows, given.c, self.op.unit_bytes // self.op.group
        row = a.stride(a.row_dim) * size if a.knows_stride(a.row_dim) else 0
        name = TileKernel(
            self.op.name, here.shape, row, given.b.row, c.row_stride * self.op.unit_bytes, tuple(x.lines for x in ahead)
        ).name
        args = [a.address(first, index(0)), given.b.at(here.panel, k.first * TILE), c.address(*at), k.count, k.clear]
        args += [] if row else [a.any_stride(a.row_dim) * index(size)]
        args += [x for one in ahead for x in (one.address, one.stride)]
        return tir.Evaluate(tir.call_extern("void", name, *args))


def _shaped(count: Any, shape: tuple[Any, Any], stmt: Stmt, others: tuple[Any, Any]) -> Stmt:
    """`stmt` between loading that shape of the registers, where `count`, part of it, fills no whole tiles, and that of others."""
    uneven = tir.floormod(count, index(TILE)) > index(0)

    def load(rows: Any, columns: Any) -> Stmt:
        sizes = (index(size) if isinstance(size, int) else size for size in (rows, columns))
        return tir.IfThenElse(uneven, tir.Evaluate(tir.call_extern("void", EDGE, *sizes)), None)

    return tile_ir.sequence([load(*shape), stmt, load(*others)])


def _left(first: Any, size: int, total: int, limit: Any) -> Any:
    """How many of `size` from `first` on are there, at least 1; None: always all."""
    if limit is None and total % size == 0:
        return None
    return tir.min(at_most(total, limit) - first, index(size))
