"""`T.copy`: a parallel nest of assignments; its rule and lowering are those of the nest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import tirx as tir

from tile_compiler.simt.operators.expand import Expansion
from tile_compiler.simt.operators.nests import is_global, is_shared, nest
from tile_compiler.simt.operators.store_by_tma import staged_tile, store_by_tma
from tile_compiler.tileops.site import at, cast, element_type
from tilelang.ir import tile_ir
from tilelang.ops import Copy


def expand_copy(op: Copy, to: Expansion) -> Any:
    """`tl.copy(src, dst)` -> `for i, j in T.Parallel: dst[i, j] = cast(src[i, j])`.

    In kernels whose tiles come by TMA, tiles leave by it too (`store_by_tma`). A copy inside one buffer whose regions
    are not the same goes through a temporary, as all of the source is read before anything is written.
    """
    if to.share_storage(op.src, op.dst):
        extents = [e for e, _, _ in op.tile_axes()] or [tir.const(1, "int32")]
        held = tile_ir.whole(to.temporary(extents, element_type(op.src), f"{op.src.source.name}_held"))
        return tile_ir.sequence([move(op.src, held, to), move(held, op.dst, to)])
    stored = store_by_tma(op, to)
    if stored is not None:
        return stored
    tile = staged_tile(op, to)
    if tile is not None:
        return tile_ir.sequence([move(op.src, tile, to), store_by_tma(replace(op, src=tile), to)])
    cache = op.eviction_policy if op.eviction_policy in ("evict_first", "evict_last") else None
    return move(op.src, op.dst, to, asynchronous=bool(op.prefer_async), cache=cache)


def move(src: Any, dst: Any, to: Expansion, *, asynchronous: bool = False, cache: str | None = None) -> Any:
    """The nest that copies one region to another, at the place of an operator."""
    return copy_nest(src, dst, to.span, asynchronous=asynchronous, cache=cache)


def copy_nest(src: Any, dst: Any, span: Any, *, asynchronous: bool = False, cache: str | None = None) -> Any:
    """`for i, j in T.Parallel: dst[i, j] = cast(src[i, j])` over two regions."""
    axes = Copy(src, dst).tile_axes()
    dtype = element_type(dst)

    def body(offsets: list[Any]) -> Any:
        from_ = at(src, {s: o for (_, s, _), o in zip(axes, offsets)})
        into = at(dst, {d: o for (_, _, d), o in zip(axes, offsets)})
        value = cast(tir.BufferLoad(src.source, from_), dtype)
        return tir.BufferStore(dst.source, value, into, span=span)

    fits = asynchronous and is_shared(dst.source)
    return nest(
        [e for e, _, _ in axes], body, "T.copy", span, asynchronous=fits, cache=cache if is_global(src.source) else None
    )


def whole_copy(src: Any, dst: Any, span: Any) -> Any:
    """The nest that copies one buffer to another of its shape."""

    def body(offsets: list[Any]) -> Any:
        value = cast(tir.BufferLoad(src, offsets), tile_ir.dtype_name(dst))
        return tir.BufferStore(dst, value, offsets, span=span)

    return nest(list(src.ty.shape), body, "T.copy", span)
