"""`T.cumsum` and its like: rows are dealt out to threads, which walk along them in shared memory."""

from __future__ import annotations

import math
from typing import Any

from tvm import tirx as tir

from tile_compiler.simt.distribution import linear
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.copy import move
from tile_compiler.simt.operators.expand import Expansion
from tile_compiler.simt.operators.nests import int32, is_shared, is_whole, load, local, serial, store, under, unrolled
from tile_compiler.tileops.combine import accumulator_type, combine_of
from tile_compiler.tileops.site import cast, element_type
from tilelang.ir import tile_ir
from tilelang.ops import Scan


def expand_scan(op: Scan, to: Expansion) -> Any:
    """The scan happens in a shared tile of the accumulator's type; other operands are copied there and back.

    before:     T.tl.scan(x[0:64, 0:32], y[0:64, 0:32])
    after:      copy(x, x_scan); T.tl.scan(x_scan, x_scan); copy(x_scan, y)
    """
    dtype = accumulator_type(element_type(op.src), element_type(op.dst))
    shape = [r.extent for r in op.src.region]
    tile = tile_ir.whole(to.temporary(shape, dtype, f"{op.src.source.name}_scan", "shared.dyn"))
    staged = Scan(tile, tile, op.kind, op.dim, op.reverse)
    return tile_ir.sequence([move(op.src, tile, to), staged.to_stmt(to.span), move(tile, op.dst, to)])


def lower_scan(op: Scan, low: Lowering) -> Any:
    """`tl.scan(t, t)` -> each thread: `run = t[r, 0]; for k in 1..K: run = step(run, t[r, k]); t[r, k] = run`."""
    buffer = op.src.source
    assert is_shared(buffer)
    assert is_whole(op.src)
    shape = [int(r.extent) for r in op.src.region]
    dim = op.dim % len(shape)
    dtype = element_type(op.src)
    combine = combine_of(op.kind, dtype, dtype)
    kept = [d for d in range(len(shape)) if d != dim]
    rows = [shape[d] for d in kept] or [1]
    dist = linear(rows, low.threads)
    total = local(1, dtype, "running")
    low.temporaries.append(tir.AllocBuffer(total))
    assert math.prod(rows) > 0

    def row(r: Any) -> Any:
        place, conditions = dist.place(low.tx, r)

        def at(k: Any) -> list[Any]:
            index = dict(zip(kept, place))
            index[dim] = shape[dim] - 1 - k if op.reverse else k
            return [index[d] for d in range(len(shape))]

        def step(k: Any) -> Any:
            value = _step(op.kind, combine, load(total, 0), tir.BufferLoad(buffer, at(k + 1)))
            update = store(total, value, 0)
            return tile_ir.sequence([update, store(buffer, cast(load(total, 0), dtype), *at(k + 1), span=low.span)])

        first = store(total, tir.BufferLoad(buffer, at(int32(0))), 0)
        rest = [] if shape[dim] == 1 else [serial("k", shape[dim] - 1, step)]
        return under(conditions, tile_ir.sequence([first, *rest]))

    return unrolled("r", dist.steps, row)


def _step(kind: str, combine: Any, old: Any, value: Any) -> Any:
    """As in a reduction; but the first element may be NaN here, and a NaN loses against any number after it."""
    if kind in ("max", "min") and combine.dtype.startswith("float"):
        return tir.Select(tir.isnan(old), value, combine.step(old, value))
    return combine.step(old, value)
