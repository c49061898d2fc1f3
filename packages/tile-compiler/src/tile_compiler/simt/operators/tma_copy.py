"""`T.tma_copy`: the boxes of a tensor map, each started by one instruction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.simt.layout.equations import Level, Rule, Unknown, Value
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.multicast import in_parts
from tile_compiler.simt.operators.barrier import barrier_address
from tile_compiler.simt.operators.nests import int32, is_shared, run
from tile_compiler.simt.operators.twin import RuleSite
from tile_compiler.simt.tensor_maps import ALIGNMENT, preferred_layout, tma_able
from tilelang.ir import tile_ir
from tilelang.layout import Layout
from tilelang.ops import TmaCopy


@dataclass
class TmaRule(Rule):
    """strict: the tile lies in panels of the widest swizzle that fits, which wgmma reads too."""

    tile: Unknown
    region: Any

    def propose(self, level: Level, known: Mapping[Unknown, Value]) -> Iterator[tuple[Unknown, Value]]:
        if level == Level.STRICT and self.tile not in known:
            layout = preferred_layout(self.region)
            if layout is not None:
                yield self.tile, layout

    def unknowns(self) -> tuple[Unknown, ...]:
        return (self.tile,)


def tma_rule(op: TmaCopy, site: RuleSite) -> Rule:
    tile = next((r for r in (op.dst, op.src) if is_shared(r.source)), None)
    if tile is None:
        return Rule("T.tma_copy", site.span)
    return TmaRule("T.tma_copy", site.span, site.unknown(tile.source), tile)


def lower_tma_copy(op: TmaCopy, low: Lowering) -> Any:
    """One call for each box; the thread that executes it starts the copy.

    before:     T.tl.tma_copy(A[m:m + 64, k:k + 64], s[0:64, 0:64], full[0])
    after:      tl::tma_load(&s[0, 0], A_map, &full[0], k, m)
    of 2 blocks tl::tma_load_multicast(&s[32 * rank, 0], A_map, &full[0], 3, k, m + 32 * rank)

    Raises UnsupportedOnTarget, with the reason, for what the hardware cannot copy.
    """
    tile = next((r.source for r in (op.dst, op.src) if is_shared(r.source)), None)
    layout = None if tile is None else low.layout(tile)
    assert layout is None or isinstance(layout, Layout)
    plan = tma_able(op.src, op.dst, low.ranges, low.ctx, layout=layout, safe=list(low.safe))
    if op.blocks > 1:
        parts = in_parts(op.src, op.dst, op.rank, op.blocks, low.ranges, low.ctx, layout=layout, safe=list(low.safe))
        plan = parts or f"it cannot be cut into {op.blocks} parts"
    if isinstance(plan, str):
        raise UnsupportedOnTarget(
            f"T.tma_copy of {op.src.source.name} to {op.dst.source.name} has no instruction",
            at=low.span,
            found=plan,
            expected="a tile of a contiguous tensor with rows of multiples of 16 bytes, in panels or rows",
            repair="T.copy, which copies every tile",
        )
    if plan.loads and tile in low.rounded:
        plan = replace(plan, map=replace(plan.map, rounds=True))
    low.ctx.aligned(plan.map.tensor, ALIGNMENT)
    low.ctx.filled.add(str(plan.map.tensor.name))
    low.ctx.report.note(low.span, f"T.tma_copy: {plan.describe()}")
    tensor_map = low.tensor_map(plan.map)
    hint = f"<tl::{op.eviction_policy}>" if op.eviction_policy in ("evict_first", "evict_last") else ""
    calls = []
    for box in plan.boxes:
        corner = tir.address_of(tir.BufferLoad(tile, [low.simplify(i) for i in box.corner]))
        if plan.blocks > 1:
            everyone = int32((1 << plan.blocks) - 1)
            places = (corner, tensor_map, barrier_address(op.barrier), everyone)
            call = run(f"tl::tma_load_multicast{hint}", *places, *box.coordinates, span=low.span)
        elif plan.loads:
            call = run(
                f"tl::tma_load{hint}", corner, tensor_map, barrier_address(op.barrier), *box.coordinates, span=low.span
            )
        else:
            call = run(f"tl::tma_store{hint}", tensor_map, corner, *box.coordinates, span=low.span)
        calls.append(call)
    return tile_ir.sequence(calls)
