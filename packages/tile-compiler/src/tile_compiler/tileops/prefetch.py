"""`T.prefetch`: where the lines of a tensor's tile lie, for targets that fetch them."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.context import Fetch
from tile_compiler.tileops.site import Site
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.ops import Prefetch


def lower_prefetch(op: Prefetch, site: Site) -> Any:
    """`tl.prefetch(tile)` -> the target's fetch of the tile's rows, of which each begins inside of the tensor; nothing where it
    has none."""
    buffer, last = op.tile.source, len(op.tile.region) - 1
    if site.ctx.fetch is None:
        site.ctx.report.note(site.span, "T.prefetch has no effect on this target")
        return tile_ir.sequence([])
    itemsize = dtype_of(tile_ir.dtype_name(buffer)).itemsize

    def row(offsets: dict[int, Any]) -> Any:
        indices = []
        for d, (r, size) in enumerate(zip(op.tile.region, buffer.ty.shape)):
            index = _wide(r.min) + _wide(offsets.get(d, 0))
            indices.append(tir.max(tir.min(index, _wide(size) - 1), tir.const(0, "int64")))
        at = tir.address_of(tir.BufferLoad(buffer, indices))
        assert site.ctx.fetch is not None
        extent = tile_ir.static(op.tile.region[last].extent)
        size = _wide(op.tile.region[last].extent) * itemsize if extent is None else _wide(extent * itemsize)
        return site.ctx.fetch(Fetch(at, size))

    def rows(d: int, offsets: dict[int, Any]) -> Any:
        if d == last:
            return row(offsets)
        if tile_ir.static(op.tile.region[d].extent) == 1:
            return rows(d + 1, offsets)
        var = tir.Var("row", "int64")
        body = rows(d + 1, {**offsets, d: var})
        return tir.For(var, tir.const(0, "int64"), _wide(op.tile.region[d].extent), tir.ForKind.SERIAL, body)

    return rows(0, {})


def _wide(value: Any) -> Any:
    known = value if isinstance(value, int) else tile_ir.static(value)
    return prim.Cast("int64", value) if known is None else tir.const(known, "int64")
