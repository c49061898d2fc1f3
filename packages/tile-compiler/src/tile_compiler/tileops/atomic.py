"""`T.atomic_*` on a tile: one element atomic for each element."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.tileops.copy import stage_in
from tile_compiler.tileops.site import Site, at, cast, element_type
from tilelang.ir import tile_ir
from tilelang.ops import AtomicTile
from tilelang.ops.atomic import ELEMENT


def lower_atomic_tile(op: AtomicTile, site: Site) -> Any:
    """`tl.atomic(dst, value)` -> `for i, j in T.parallel: tl.atomic_elem(address_of(dst[i, j]), value[i, j])`."""
    dst, dtype = op.dst, element_type(op.dst)
    before: list[Any] = []
    value = op.value
    is_tile = hasattr(value, "region")
    if is_tile and site.share_storage(value, dst):
        loads, value = stage_in(value, site, f"{value.source.name}_held")
        before.append(loads)
    dims = [d for d, r in enumerate(dst.region) if tile_ir.static(r.extent) != 1]
    value_dims = [d for d, r in enumerate(value.region) if tile_ir.static(r.extent) != 1] if is_tile else []

    def body(offsets: list[Any]) -> Any:
        target = tir.address_of(tir.BufferLoad(dst.source, at(dst, dict(zip(dims, offsets)))))
        operand = tir.BufferLoad(value.source, at(value, dict(zip(value_dims, offsets)))) if is_tile else value
        attrs = {"op": op.op, "memory_order": op.memory_order}
        call = tile_ir.call(ELEMENT, [target, cast(operand, dtype)], attrs, dtype=dtype, span=site.span)
        return tir.Evaluate(call, span=site.span)

    return tile_ir.sequence([*before, site.nest([dst.region[d].extent for d in dims], "ijkl", body)])
