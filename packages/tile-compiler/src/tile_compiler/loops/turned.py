"""A copy that turns a matrix: rows of what it writes are columns of what it reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.loops.affine import linear, pattern
from tile_compiler.rewrite import substitute
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of


@dataclass(frozen=True)
class Turn:
    """target[i, j] = source[j, i] for i < rows, j < columns, elements of `itemsize` bytes.

    `source` and `target` are the addresses of (0, 0); the pitches are bytes between rows of each.
    """

    rows: int
    columns: int
    itemsize: int
    source: Any
    source_pitch: int
    target: Any
    target_pitch: int


def turn_of(nest: tile_ir.ParallelNest, body: Any) -> Turn | None:
    """The copy that a nest of two static loops makes of elements of one type, or None.

    for i, j in T.parallel(256, 32): P[p, i, j] = tile[j, i]
    """
    axes = [(v, e) for v, e in zip(nest.loop_vars, map(tile_ir.static, nest.extents)) if e is not None]
    stmts = tile_ir.statements(body)
    if not len(axes) == len(nest.loop_vars) == 2 or len(stmts) != 1 or not isinstance(stmts[0], tir.BufferStore):
        return None
    store, load = stmts[0], stmts[0].value
    if not isinstance(load, ir.TensorLoad) or tile_ir.dtype_name(load.source) != tile_ir.dtype_name(store.buffer):
        return None
    if any(str(b.scope()) in tile_ir.PRIVATE for b in (store.buffer, load.source)):
        return None
    if pattern(store.buffer, list(store.indices), axes[1][0]) != "contiguous":
        axes.reverse()
    (i, rows), (j, columns) = axes
    along = pattern(store.buffer, list(store.indices), j), pattern(load.source, list(load.indices), i)
    source_pitch, target_pitch = step(load.source, list(load.indices), j), step(store.buffer, list(store.indices), i)
    if along != ("contiguous", "contiguous") or not source_pitch or not target_pitch:
        return None
    first = {v: tir.const(0, str(v.ty)) for v in (i, j)}
    itemsize = dtype_of(tile_ir.dtype_name(store.buffer)).itemsize
    source, target = (
        tir.address_of(tir.BufferLoad(buffer, [substitute(x, first) for x in indices]))
        for buffer, indices in ((load.source, load.indices), (store.buffer, store.indices))
    )
    return Turn(rows, columns, itemsize, source, source_pitch * itemsize, target, target_pitch * itemsize)


def step(buffer: Any, indices: list[Any], var: Any) -> int | None:
    """How many elements an access moves when `var` grows by one, where that is known."""
    strides: list[int | None] = [tile_ir.static(s) for s in buffer.ty.strides or ()]
    if not strides:
        strides = [1]
        for extent in reversed(list(buffer.ty.shape)[1:]):
            inner, size = strides[0], tile_ir.static(extent)
            strides.insert(0, None if inner is None or size is None else inner * size)
    total = 0
    for index, stride in zip(indices, strides):
        found = linear(index, var)
        if found is None or (found[0] and stride is None):
            return None
        total += found[0] * (stride or 0)
    return total
