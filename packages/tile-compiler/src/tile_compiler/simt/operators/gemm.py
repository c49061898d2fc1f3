"""`T.gemm`: `mma.sync` where the element types have an instruction, else a sum of products in each thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.simt.distribution import Distribution, linear
from tile_compiler.simt.layout.equations import Level, Rule, Unknown, Value
from tile_compiler.simt.operators.copy import move
from tile_compiler.simt.operators.expand import Expansion
from tile_compiler.simt.operators.instructions import mma_for
from tile_compiler.simt.operators.nests import is_fragment, is_shared, is_whole, static_shape
from tile_compiler.simt.operators.warps import WarpTiling, tiling
from tile_compiler.tileops.site import element_type
from tilelang.ir import tile_ir
from tilelang.layout import make_swizzled_layout
from tilelang.ops import Gemm


def tiling_of(op: Gemm, threads: int, arch: int) -> WarpTiling | None:
    """How the block does the product with `mma.sync`; None where it cannot."""
    mma = mma_for(element_type(op.a), element_type(op.b), element_type(op.c), arch)
    if mma is None or (op.transpose_a and is_fragment(op.a.source)) or (op.transpose_b and is_fragment(op.b.source)):
        return None
    return tiling(mma, op.m, op.n, op.k, op.policy, threads)


def expand_gemm(op: Gemm, to: Expansion) -> Any:
    """Stage operands: C becomes a whole fragment, A and B whole fragments or shared tiles.

    before:     T.tl.gemm(A[0:64, 0:32], B_s[0:32, 0:64], C_s[0:64, 0:64])
    after:      copy(A, A_tile); copy(C_s, C_tile); T.tl.gemm(A_tile, B_s, C_tile); copy(C_tile, C_s)
    """
    before: list[Any] = []
    after: list[Any] = []
    a, b, c = op.a, op.b, op.c
    uses_mma = tiling_of(op, to.threads, to.ctx.arch.number) is not None

    def staged(region: Any, name: str, scope: str) -> Any:
        tile = to.temporary([r.extent for r in region.region], element_type(region), name, scope)
        return tile_ir.whole(tile)

    def operand(region: Any) -> Any:
        whole = is_fragment(region.source) and is_whole(region) and len(region.region) == 2
        if (whole and uses_mma) or (is_shared(region.source) and to.ranges.inside(region)):
            return region
        tile = staged(region, f"{region.source.name}_tile", "shared.dyn")
        before.append(move(region, tile, to))
        return tile

    a, b = operand(a), operand(b)
    if not (is_fragment(c.source) and is_whole(c) and len(c.region) == 2):
        target = c
        tile = to.temporary(
            [c.region[-2].extent, c.region[-1].extent], element_type(c), f"{c.source.name}_tile", "local.fragment"
        )
        c = tile_ir.whole(tile)
        before += [] if tile_ir.static(op.clear_accum) == 1 else [move(target, c, to)]
        after.append(move(c, target, to))
    staged_op = Gemm(a, b, c, op.clear_accum, op.transpose_a, op.transpose_b, op.policy, op.k_pack)
    return tile_ir.sequence([*before, staged_op.to_stmt(to.span), *after])


@dataclass
class GemmRule(Rule):
    """strict: C, and A and B in registers, as the instruction wants them; shared operands swizzled.

    Without an instruction C is free and shared operands stay row-major.
    """

    op: Gemm
    a: Unknown
    b: Unknown
    c: Unknown
    threads: int
    tiles: WarpTiling | None

    def unknowns(self) -> tuple[Unknown, ...]:
        return (self.a, self.b, self.c)

    def _demands(self) -> Iterator[tuple[Unknown, Distribution]]:
        if self.tiles is None:
            return
        yield self.c, self.tiles.c()
        if is_fragment(self.op.a.source):
            yield self.a, self.tiles.a()
        if is_fragment(self.op.b.source):
            yield self.b, self.tiles.b()

    def propose(self, level: Level, known: Mapping[Unknown, Value]) -> Iterator[tuple[Unknown, Value]]:
        if level == Level.STRICT and self.tiles is not None:
            yield from ((u, v) for u, v in self._demands() if u not in known)
            for region, unknown, k_last in (
                (self.op.a, self.a, not self.op.transpose_a),
                (self.op.b, self.b, self.op.transpose_b),
            ):
                if is_shared(region.source) and unknown not in known:
                    shape = static_shape(region.source)
                    if shape is None:
                        raise UnsupportedOnTarget(f"{region.source.name} has no constant shape", at=self.span)
                    yield unknown, make_swizzled_layout(shape, dtype=element_type(region), k_major=k_last)
        elif level == Level.FREE and self.c not in known:
            vector = 4 if self.op.n % 4 == 0 and self.op.m * self.op.n >= 4 * self.threads else 1
            yield self.c, linear((self.op.m, self.op.n), self.threads, vector)

    def fault(self, known: Mapping[Unknown, Value]) -> tuple[Unknown, str] | None:
        for unknown, demand in self._demands():
            value = known[unknown]
            if not isinstance(value, Distribution) or value.fragment != demand.fragment:
                return unknown, f"{demand.describe()} for {self.tiles.mma.name if self.tiles else 'the product'}"
        return None


def gemm_rule(op: Gemm, span: Any, unknown: Any, threads: int, arch: int) -> GemmRule:
    a, b, c = (unknown(r.source) for r in (op.a, op.b, op.c))
    return GemmRule("T.gemm", span, op, a, b, c, threads, tiling_of(op, threads, arch))


def is_false(value: Any) -> bool:
    return tile_ir.static(value) == 0


def cleared(op: Gemm, zero: Any, span: Any) -> list[Any]:
    """The statement that sets C to 0 first, if the product starts from 0."""
    if is_false(op.clear_accum):
        return []
    return [zero if tile_ir.static(op.clear_accum) else tir.IfThenElse(op.clear_accum, zero, None, span=span)]
