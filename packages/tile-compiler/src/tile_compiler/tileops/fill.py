"""`T.fill` and `T.clear` as a parallel nest of stores."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.ranges import reads_memory
from tile_compiler.tileops.site import Site, at, cast, element_type
from tilelang.ir import tile_ir
from tilelang.ops import Fill


def lower_fill(op: Fill, site: Site) -> Any:
    """`tl.fill(dst, value)` -> `for i, j in T.parallel: dst[i, j] = cast(value)`."""
    dims = [d for d, r in enumerate(op.dst.region) if tile_ir.static(r.extent) != 1]
    value = cast(op.value, element_type(op.dst))
    before: list[Any] = []
    if reads_memory(value):  # evaluated once, before the first store
        held = tir.Var("fill_value", str(value.ty))
        before.append(site.guarded(tir.Bind(held, value, span=site.span)))
        value = held

    def body(offsets: list[Any]) -> Any:
        return tir.BufferStore(op.dst.source, value, at(op.dst, dict(zip(dims, offsets))), span=site.span)

    return tile_ir.sequence([*before, site.nest([op.dst.region[d].extent for d in dims], "ijkl", body)])
