"""Tiles that all blocks of a cluster use: each block brings one part to all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tile_compiler.ranges import Ranges
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.nests import int32
from tile_compiler.simt.tensor_maps import Box, Plan, tma_able
from tilelang.ir import tile_ir
from tilelang.layout import Layout
from tilelang.ops.copy import Copy


def in_parts(
    src: Any,
    dst: Any,
    rank: Any,
    blocks: int,
    ranges: Ranges,
    ctx: SimtContext,
    *,
    layout: Layout | None = None,
    safe: Sequence[Any] = (),
) -> Plan | None:
    """How block number `rank` of so many `blocks` brings its part of a tile, cut along the axis that takes the fewest boxes.

    The parts are copied by boxes of one kind, each to its own place of the tile; `bytes` are those of all parts. None
    where no axis can be cut so. `layout`, `safe`: as for `tma_able`.
    """
    found: list[Plan] = []
    for extent, source_axis, tile_axis in Copy(src, dst).tile_axes():
        size = tile_ir.static(extent)
        if size is None or size % blocks:
            continue
        part = size // blocks

        def plan(source: Any, tile: Any, part: int = part, axes: tuple[int, int] = (source_axis, tile_axis)) -> Any:
            pair = (_part(src, axes[0], source, part), _part(dst, axes[1], tile, part))
            return tma_able(*pair, ranges, ctx, layout=layout, safe=safe)

        parts = [plan(int32(n * part), int32(n * part)) for n in range(blocks)]
        mine = plan(rank * int32(part), int32(0))
        if any(isinstance(p, str) for p in (*parts, mine)):
            continue
        if any(not p.map.same_as(mine.map) or len(p.boxes) != len(mine.boxes) for p in parts):
            continue
        boxes = tuple(_moved(b, tile_axis, rank * int32(part)) for b in mine.boxes)
        found.append(replace(mine, boxes=boxes, bytes=mine.bytes * blocks, blocks=blocks))
    return min(found, key=lambda p: len(p.boxes), default=None)


def _part(region: Any, axis: int, start: Any, extent: int) -> Any:
    """`extent` elements of a region along one axis, from `start` on."""
    ranges = [(r.min, r.extent) for r in region.region]
    low = ranges[axis][0]
    ranges[axis] = (low + start.astype(str(low.ty)), int32(extent))
    return tile_ir.region(region.source, ranges)


def _moved(box: Box, axis: int, by: Any) -> Box:
    corner = list(box.corner)
    corner[axis] = corner[axis] + by
    return replace(box, corner=tuple(corner))
