"""`T.gemm`: a matrix instruction where the element types have one, else a sum of products in each thread."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.distribution import Distribution, linear, of_fragment
from tile_compiler.simt.layout.equations import Level, Rule, Unknown, Value
from tile_compiler.simt.operators.choose_instruction import Choice, choose_instruction
from tile_compiler.simt.operators.copy import move
from tile_compiler.simt.operators.expand import Expansion
from tile_compiler.simt.operators.nests import is_fragment, is_shared, is_whole, static_shape
from tile_compiler.simt.operators.warps import WarpTiling
from tile_compiler.simt.operators.wgmma.shared_matrix import operand_layout
from tile_compiler.simt.operators.wgmma.tiling import WarpgroupTiling
from tile_compiler.tileops.site import element_type
from tilelang.ir import tile_ir
from tilelang.layout import Fragment, Layout, make_swizzled_layout, placeholders
from tilelang.ops import Gemm


def expand_gemm(op: Gemm, to: Expansion) -> Any:
    """Stage operands: C becomes a whole fragment of the accumulator's type, A and B whole fragments or shared tiles.

    before:     T.tl.gemm(A[0:64, 0:32], B_s[0:32, 0:64], C_s[0:64, 0:64])
    after:      copy(A, A_tile); copy(C_s, C_tile); T.tl.gemm(A_tile, B_s, C_tile); copy(C_tile, C_s)

    Registers hold A as (m, k) and B as (k, n); one stored the other way round passes through shared memory, and so does
    B for warpgroups.
    """
    before: list[Any] = []
    after: list[Any] = []
    choice = choose_instruction(op, to.threads, to.ctx, to.span)
    tiles = choice.tiles
    by_waves = tiles is not None
    registers = (by_waves, isinstance(tiles, WarpTiling))  # whether the instruction takes A, B from there

    def staged(region: Any, shape: list[Any], dtype: str, scope: str) -> Any:
        return tile_ir.whole(to.temporary(shape, dtype, f"{region.source.name}_tile", scope))

    def operand(region: Any, transposed: bool, held: bool) -> Any:
        whole = is_fragment(region.source) and is_whole(region) and len(region.region) == 2
        if (whole and held and not transposed) or (is_shared(region.source) and to.ranges.inside(region)):
            return region
        if is_fragment(region.source):
            why = "is stored transposed" if whole and held else "is read by other threads"
            to.ctx.report.note(to.span, f"gemm: {region.source.name} goes through shared memory, as it {why}")
        tile = staged(region, [r.extent for r in region.region], element_type(region), "shared.dyn")
        before.append(move(region, tile, to))
        return tile

    a, b = operand(op.a, op.transpose_a, registers[0]), operand(op.b, op.transpose_b, registers[1])
    c = op.c
    dtype = choice.sums or element_type(c)
    if not (is_fragment(c.source) and is_whole(c) and len(c.region) == 2 and element_type(c) == dtype):
        if dtype != element_type(c):
            to.ctx.report.note(to.span, f"gemm: summed in {dtype}, rounded to {element_type(c)} afterwards")
        c = staged(op.c, [r.extent for r in op.c.region[-2:]], dtype, "local.fragment")
        before += [] if tile_ir.static(op.clear_accum) == 1 else [move(op.c, c, to)]
        after.append(move(c, op.c, to))
    staged_op = Gemm(a, b, c, op.clear_accum, op.transpose_a, op.transpose_b, op.policy, op.k_pack)
    return tile_ir.sequence([*before, staged_op.to_stmt(to.span), *after])


@dataclass
class GemmRule(Rule):
    """strict: C, and A and B in registers, as the instruction wants them; shared operands swizzled.

    Warpgroups give way to waves where a shared operand has a layout that no descriptor describes (a user's, that of a
    view, or of memory that a function of the user gets).

    free: without an instruction, C in rectangles of a thread each (`rectangles`), and shared operands stored along k
    swizzled, as neighbouring threads read neighbouring rows of them.
    """

    op: Gemm
    a: Unknown
    b: Unknown
    c: Unknown
    threads: int
    choice: Choice
    ctx: SimtContext
    beside: list[Gemm] = field(default_factory=list)  # other products without an instruction, of as many rows

    def meet(self, others: Sequence[Rule]) -> None:
        self.beside = [
            other.op
            for other in others
            if isinstance(other, GemmRule) and other is not self and other.choice.tiles is None
            if (other.op.m, other.threads) == (self.op.m, self.threads)
        ]

    def unknowns(self) -> tuple[Unknown, ...]:
        return (self.a, self.b, self.c)

    def _demands(self) -> Iterator[tuple[Unknown, Distribution]]:
        tiles = self.choice.tiles
        if tiles is None:
            return
        yield self.c, tiles.c()
        if is_fragment(self.op.a.source):
            yield self.a, tiles.a()
        if is_fragment(self.op.b.source) and isinstance(tiles, WarpTiling):
            yield self.b, tiles.b()

    def propose(self, level: Level, known: Mapping[Unknown, Value]) -> Iterator[tuple[Unknown, Value]]:
        if level == Level.STRICT and isinstance(self.choice.tiles, WarpgroupTiling):
            self._reconsider(self.choice.tiles, known)
        if level == Level.STRICT and self.choice.tiles is not None:
            yield from ((u, v) for u, v in self._demands() if u not in known)
            for region, unknown, k_last in (
                (self.op.a, self.a, not self.op.transpose_a),
                (self.op.b, self.b, self.op.transpose_b),
            ):
                if is_shared(region.source) and unknown not in known:
                    shape = static_shape(region.source)
                    if shape is None:
                        raise UnsupportedOnTarget(f"{region.source.name} has no constant shape", at=self.span)
                    yield unknown, self._operand_layout(region, shape, k_last)
        elif level == Level.FREE and self.choice.tiles is None:
            if self.c not in known:
                fragments = [value for unknown, value in known.items() if unknown.key is not None]  # no loops
                yield self.c, rectangles(self.op, self.threads, fragments, self.beside)
            for region, unknown, k_last in (
                (self.op.a, self.a, not self.op.transpose_a),
                (self.op.b, self.b, self.op.transpose_b),
            ):
                if k_last and is_shared(region.source) and unknown not in known:
                    yield unknown, make_swizzled_layout(unknown.shape, dtype=element_type(region), allow_pad=False)

    def _operand_layout(self, region: Any, shape: tuple[int, ...], k_last: bool) -> Layout:
        tiles, dtype = self.choice.tiles, element_type(region)
        is_a = region is self.op.a
        if isinstance(tiles, WarpgroupTiling) and not tiles.is_loaded(is_a):
            return operand_layout(shape, dtype, tiles.pieces(is_a, region, k_last))
        return make_swizzled_layout(shape, dtype=dtype, k_major=k_last)

    def _reconsider(self, tiles: WarpgroupTiling, known: Mapping[Unknown, Value]) -> None:
        """Other instructions, if a tile already has a layout that no descriptor describes."""
        for region, unknown, k_last in (
            (self.op.a, self.a, not self.op.transpose_a),
            (self.op.b, self.b, self.op.transpose_b),
        ):
            if is_shared(region.source) and unknown in known:
                fault = tiles.layout_fault(region is self.op.a, region, known[unknown], k_last)
                if fault:
                    self.choice = choose_instruction(self.op, self.threads, self.ctx, self.span, fault)
                    return

    def fault(self, known: Mapping[Unknown, Value]) -> tuple[Unknown, str] | None:
        for unknown, demand in self._demands():
            value = known[unknown]
            if not isinstance(value, Distribution) or value.fragment != demand.fragment:
                name = self.choice.tiles.label if self.choice.tiles else "the product"
                return unknown, f"{demand.describe()} for {name}"
        return None


def multiplies_alone(rules: Iterable[Rule | None]) -> bool:
    """Whether a kernel has a product without a matrix instruction."""
    return any(isinstance(rule, GemmRule) and rule.choice.tiles is None for rule in rules)


@dataclass(frozen=True)
class _Rectangles:
    """How a thread's rows and columns lie: `of_rows` neighbours of `rows`, `of_columns` neighbours of `columns`; `across`
    threads share the rows."""

    across: int
    of_rows: int
    of_columns: int
    rows: int
    columns: int

    @staticmethod
    def of(op: Gemm, threads: int) -> list[_Rectangles]:
        """All that the shape of C has. Neighbours where an operand's memory has them, which is where k is not last."""
        widths = [(1,) if k_last else (4, 2, 1) for k_last in (not op.transpose_a, op.transpose_b)]
        found = []
        for across, of_rows, of_columns in product((1, 2, 4, 8, 16, 32), *widths):
            down = threads // across
            if threads % across == 0 and op.m % (down * of_rows) == 0 and op.n % (across * of_columns) == 0:
                found.append(_Rectangles(across, of_rows, of_columns, op.m // down, op.n // across))
        return found

    @property
    def of_a_row(self) -> tuple[int, int]:
        """What says which threads have a row."""
        return self.across, self.of_rows

    def cost(self, op: Gemm) -> float:
        """Elements read for a step of k, and the loads for them."""
        loads = self.rows / (self.of_rows if op.transpose_a else 4) + self.columns / (
            4 if op.transpose_b else self.of_columns
        )
        return self.rows + self.columns + loads

    def distribution(self, op: Gemm, threads: int) -> Distribution:
        down = threads // self.across
        i, j = placeholders(2)
        thread = i // self.of_rows % down * self.across + j // self.of_columns % self.across
        row = i // (down * self.of_rows) * self.of_rows + i % self.of_rows
        column = j // (self.across * self.of_columns) * self.of_columns + j % self.of_columns
        register = row * self.columns + column
        return of_fragment(Fragment.from_exprs((op.m, op.n), thread, register, 1, threads), threads)


def rectangles(op: Gemm, threads: int, others: Iterable[Value] = (), beside: Sequence[Gemm] = ()) -> Distribution:
    """C where each thread works alone: rows and columns for each thread, as close to a square as the tile has them, so that
    an element of A or B serves many products; but first with the rows of each thread that it has of `others`, so that what
    belongs to a row (a maximum, a sum) is where both tiles want it. `beside` are the kernel's other products with as many
    rows: they get the same rows where all of them can have the same, those that are cheapest for all.

    Memory decides which rows and columns. Where an operand has k last, neighbours of a thread are rows (columns) that lie
    apart: the vectors along k that neighbouring threads read are in different banks by a swizzle. Else they come in fours,
    one vector, or in twos where the tile asks for that. Threads that share rows are of one wave, for reductions along a row.
    Coalesced where the tile has no such rectangles.
    """
    m, n = op.m, op.n
    found = _Rectangles.of(op, threads)
    if not found:
        vector = 4 if n % 4 == 0 and m * n >= 4 * threads else 1
        return linear((m, n), threads, vector)
    theirs = [_cheapest(other, threads) for other in beside]
    common = [f for f in found if all(f.of_a_row in costs for costs in theirs)]
    if not common:
        common, theirs = found, []
    held = [
        v for v in others if isinstance(v, Distribution) and len(v.shape) == 2 and v.shape[0] == m and v.replicas == 1
    ]

    def rank(one: _Rectangles) -> tuple[float, ...]:
        owners = np.arange(m)[:, None] // one.of_rows % (threads // one.across)
        alike = sum(bool((v.thread_of[0] // one.across == owners).all()) for v in held)
        cost = one.cost(op) * op.k + sum(costs[one.of_a_row] for costs in theirs)
        return -alike, cost, -one.across, one.of_rows, one.of_columns

    return min(common, key=rank).distribution(op, threads)


def _cheapest(op: Gemm, threads: int) -> dict[tuple[int, int], float]:
    """What a product costs at least, by which threads have its rows."""
    costs: dict[tuple[int, int], float] = {}
    for one in _Rectangles.of(op, threads):
        costs[one.of_a_row] = min(one.cost(op) * op.k, costs.get(one.of_a_row, np.inf))
    return costs


def gemm_rule(op: Gemm, span: Any, unknown: Any, threads: int, ctx: SimtContext) -> GemmRule:
    a, b, c = (unknown(r.source) for r in (op.a, op.b, op.c))
    return GemmRule("T.gemm", span, op, a, b, c, threads, choose_instruction(op, threads, ctx, span), ctx)


def is_false(value: Any) -> bool:
    return tile_ir.static(value) == 0


def cleared(op: Gemm, zero: Any, span: Any) -> list[Any]:
    """The statement that sets C to 0 first, if the product starts from 0."""
    if is_false(op.clear_accum):
        return []
    return [zero if tile_ir.static(op.clear_accum) else tir.IfThenElse(op.clear_accum, zero, None, span=span)]
