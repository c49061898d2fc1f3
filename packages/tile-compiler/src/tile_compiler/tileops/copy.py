"""`T.copy` as a parallel nest: one assignment for each element, converted on the way."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.tileops.site import Site, at, cast, element_type
from tilelang.ir import tile_ir
from tilelang.ops import Copy


def lower_copy(op: Copy, site: Site) -> Any:
    """`tl.copy(src, dst)` -> `for i, j in T.parallel: dst[i, j] = cast(src[i, j])`, guarded at the edges.

    A copy inside one buffer whose regions are not the same goes through a temporary, as all of the source is read
    before anything is written.
    """
    if site.share_storage(op.src, op.dst) and not site.same_region(op.src, op.dst):
        extents = [e for e, _, _ in op.tile_axes()] or [1]
        held = site.temporary(extents, element_type(op.src), f"{op.src.source.name}_held")
        whole = tile_ir.whole(held)
        return tile_ir.sequence([_move(Copy(op.src, whole), site), _move(Copy(whole, op.dst), site)])
    site.filled.copied(op, site.ranges)
    return _move(op, site)


def _move(op: Copy, site: Site) -> Any:
    axes = op.tile_axes()
    src, dst, dtype = op.src, op.dst, element_type(op.dst)

    def body(offsets: list[Any]) -> Any:
        from_ = at(src, {s: o for (_, s, _), o in zip(axes, offsets)})
        to = at(dst, {d: o for (_, _, d), o in zip(axes, offsets)})
        value = cast(tir.BufferLoad(src.source, from_), dtype)
        return tir.BufferStore(dst.source, value, to, span=site.span)

    return site.nest([e for e, _, _ in axes], "ijkl", body)


def stage_in(region: Any, site: Site, name: str, dtype: str | None = None) -> tuple[Any, Any]:
    """(statements that copy a region to a new on-chip tile of the same rank, that tile as a region)."""
    tile = site.temporary([r.extent for r in region.region], dtype or element_type(region), name)
    held = tile_ir.whole(tile)
    return _move(Copy(region, held), site), held


def stage_out(tile: Any, region: Any, site: Site) -> Any:
    """Copy an on-chip tile back to a region."""
    return _move(Copy(tile, region), site)
