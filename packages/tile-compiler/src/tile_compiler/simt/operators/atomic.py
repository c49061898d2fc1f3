"""`T.atomic_*` on a tile: a parallel nest of element atomics."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.simt.operators.copy import move
from tile_compiler.simt.operators.expand import Expansion
from tile_compiler.simt.operators.nests import nest
from tile_compiler.tileops.site import at, cast, element_type
from tilelang.ir import tile_ir
from tilelang.ops import AtomicTile
from tilelang.ops.atomic import ELEMENT


def expand_atomic(op: AtomicTile, to: Expansion) -> Any:
    """`tl.atomic(dst, value)` -> `for i, j in T.Parallel: tl.atomic_elem(address_of(dst[i, j]), value[i, j])`."""
    dst, value, dtype = op.dst, op.value, element_type(op.dst)
    before: list[Any] = []
    is_tile = hasattr(value, "region")
    if is_tile and to.share_storage(value, dst):
        held = to.temporary([r.extent for r in value.region], element_type(value), f"{value.source.name}_held")
        before.append(move(value, tile_ir.whole(held), to))
        value = tile_ir.whole(held)
    dims = [d for d, r in enumerate(dst.region) if tile_ir.static(r.extent) != 1]
    value_dims = [d for d, r in enumerate(value.region) if tile_ir.static(r.extent) != 1] if is_tile else []

    def body(offsets: list[Any]) -> Any:
        target = tir.address_of(tir.BufferLoad(dst.source, at(dst, dict(zip(dims, offsets)))))
        operand = tir.BufferLoad(value.source, at(value, dict(zip(value_dims, offsets)))) if is_tile else value
        attrs = {"op": op.op, "memory_order": op.memory_order}
        update = tile_ir.call(ELEMENT, [target, cast(operand, dtype)], attrs, dtype=dtype, span=to.span)
        return tir.Evaluate(update, span=to.span)

    return tile_ir.sequence([*before, nest([dst.region[d].extent for d in dims], body, "T.atomic", to.span)])
