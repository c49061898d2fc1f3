"""`T.cumsum` and its like: a running result along one dimension."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.tileops.combine import accumulator_type, combine_of
from tile_compiler.tileops.copy import stage_in, stage_out
from tile_compiler.tileops.site import Site, at, cast, element_type, int32, serial, vector
from tilelang.ir import tile_ir
from tilelang.ops import Scan


def lower_scan(op: Scan, site: Site) -> Any:
    """`tl.scan(src, dst)` -> `run = src[0]; dst[0] = run; for k in 1..K: run = step(run, src[k]); dst[k] = run`.

    Along another dimension than the last one the running result is a vector of neighbouring columns. In place is
    fine: an element is read before it is written. Regions that may leave their buffer, and different regions of one
    buffer, go through temporaries.
    """
    before: list[Any] = []
    after: list[Any] = []
    src, dst = op.src, op.dst
    crossing = site.share_storage(src, dst) and not site.same_region(src, dst)
    if crossing or not site.ranges.inside(src):
        loads, src = stage_in(src, site, f"{src.source.name}_tile")
        before.append(loads)
    if not site.ranges.inside(dst):
        target = dst
        tile = site.temporary([r.extent for r in dst.region], element_type(dst), f"{dst.source.name}_tile")
        dst = tile_ir.whole(tile)
        after.append(stage_out(dst, target, site))
    return tile_ir.sequence([*before, _loops(op, src, dst, site), *after])


def _loops(op: Scan, src: Any, dst: Any, site: Site) -> Any:
    rank = len(src.region)
    dim = op.dim % rank
    extent = src.region[dim].extent
    combine = combine_of(op.kind, accumulator_type(element_type(src), element_type(dst)), element_type(dst))
    columns = rank - 1 if dim != rank - 1 else None
    width = tile_ir.static(src.region[columns].extent) if columns is not None else None
    lanes = 1
    while width is not None and lanes * 2 <= min(width, site.ctx.vector_bytes // 4) and width % (lanes * 2) == 0:
        lanes *= 2

    def position(k: Any) -> Any:
        return extent - 1 - k if op.reverse else k

    def run(index: dict[int, Any]) -> Any:
        acc = tir.decl_buffer((lanes,), combine.dtype, name="running", scope="local", layout=None)

        def place(k: Any, lane: Any) -> dict[int, Any]:
            moved = {columns: index[columns] * lanes + lane} if columns is not None and lanes > 1 else {}
            return {**index, **moved, dim: position(k)}

        def load(k: Any, lane: Any) -> Any:
            return cast(tir.BufferLoad(src.source, at(src, place(k, lane))), combine.dtype)

        def put(k: Any, value: Any) -> Any:
            def store(lane: Any) -> Any:
                new = tir.BufferStore(acc, value(lane), [lane])
                held = cast(tir.BufferLoad(acc, [lane]), element_type(dst))
                return tile_ir.sequence(
                    [new, tir.BufferStore(dst.source, held, at(dst, place(k, lane)), span=site.span)]
                )

            return vector("l", lanes, store)

        def step(k: Any) -> Any:
            after = k + 1
            return put(after, lambda lane: _step(op.kind, combine, tir.BufferLoad(acc, [lane]), load(after, lane)))

        first = put(int32(0), lambda lane: load(int32(0), lane))
        rest = serial("k", extent - 1, step) if tile_ir.static(extent) != 1 else tile_ir.sequence([])
        body = tile_ir.sequence([tir.AllocBuffer(acc), first, *tile_ir.statements(rest)])
        return body if tile_ir.static(extent) is not None else tir.IfThenElse(extent > 0, body, None)

    def over(dims: list[int], index: dict[int, Any]) -> Any:
        if not dims:
            return run(index)
        size = src.region[dims[0]].extent
        if dims[0] == columns and lanes > 1:
            size = int(width or 0) // lanes
        return serial("ijkl"[min(dims[0], 3)], size, lambda v: over(dims[1:], {**index, dims[0]: v}))

    return over([d for d in range(rank) if d != dim], {})


def _step(kind: str, combine: Any, old: Any, value: Any) -> Any:
    """As in a reduction; but the first element may be NaN here, and a NaN loses against any number after it."""
    if kind in ("max", "min") and combine.dtype.startswith("float"):
        return tir.Select(tir.isnan(old), value, combine.step(old, value))
    return combine.step(old, value)
