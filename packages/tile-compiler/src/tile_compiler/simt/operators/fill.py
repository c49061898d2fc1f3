"""`T.fill` and `T.clear`: a parallel nest of stores."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.ranges import reads_memory
from tile_compiler.simt.operators.expand import Expansion
from tile_compiler.simt.operators.nests import nest
from tile_compiler.tileops.site import at, cast, element_type
from tilelang.ir import tile_ir
from tilelang.ops import Fill


def expand_fill(op: Fill, to: Expansion) -> Any:
    """`tl.fill(dst, value)` -> `for i, j in T.Parallel: dst[i, j] = cast(value)`."""
    dims = [d for d, r in enumerate(op.dst.region) if tile_ir.static(r.extent) != 1]
    value = cast(op.value, element_type(op.dst))
    before: list[Any] = []
    if reads_memory(value):  # evaluated once, before the first store
        held = tir.Var("fill_value", str(value.ty))
        before.append(tir.Bind(held, value, span=to.span))
        value = held

    def body(offsets: list[Any]) -> Any:
        return tir.BufferStore(op.dst.source, value, at(op.dst, dict(zip(dims, offsets))), span=to.span)

    return tile_ir.sequence([*before, nest([op.dst.region[d].extent for d in dims], body, "T.fill", to.span)])
