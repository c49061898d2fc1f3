"""Kernels whose blocks run in panels (`T.use_swizzle`), and the order that the compiler gives to the blocks of a grid."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx as tir

import tilelang.language as T
from tile_compiler.simt.rasterize_grid import Panels, clustered
from tile_compiler.simt.thread_values import ThreadValues

#: A block's coordinates, and the grid's extents.
BX, BY, W, H = (tir.Var(name, "int32") for name in ("bx", "by", "w", "h"))


def numbers(
    width: int, height: int, panels: Panels, dims: tuple[int, int] = (1, 1), sizes: tuple[Any, Any] = (W, H)
) -> np.ndarray:
    """The new (column, row) of the blocks, in the order in which they run; in clusters of `dims`. `sizes`: of the grid, as
    the compiler knows them."""
    values = ThreadValues(width * height)
    values.values = {
        BX: values.lane % width,
        BY: values.lane // width,
        W: np.asarray([width]),
        H: np.asarray([height]),
    }
    parts = [np.broadcast_to(values.value(e), (width * height,)) for e in clustered(BX, BY, *sizes, panels, dims)]
    return np.stack(parts, axis=1)


def scale(rows: Any, columns: Any, order: str) -> Any:
    @T.prim_func
    def flat(A: T.Tensor((rows, columns), "float32"), B: T.Tensor((rows, columns), "float32")):
        with T.Kernel(T.ceildiv(columns, 32), T.ceildiv(rows, 4), threads=32) as (bx, by):
            T.use_swizzle(3, order=order)
            s = T.alloc_shared((4, 32), "float32")
            T.copy(A[by * 4, bx * 32], s)
            for i, j in T.Parallel(4, 32):
                s[i, j] = s[i, j] * 2 + by
            T.copy(s, B[by * 4, bx * 32])

    return flat


def scale_planes(rows: Any, columns: Any, order: str) -> Any:
    @T.prim_func
    def deep(A: T.Tensor((2, rows, columns), "float32"), B: T.Tensor((2, rows, columns), "float32")):
        with T.Kernel(T.ceildiv(columns, 32), T.ceildiv(rows, 4), 2, threads=32) as (bx, by, bz):
            T.use_swizzle(3, order=order)
            for i, j in T.Parallel(4, 32):
                B[bz, by * 4 + i, bx * 32 + j] = A[bz, by * 4 + i, bx * 32 + j] * 2 + by + bz

    return deep
