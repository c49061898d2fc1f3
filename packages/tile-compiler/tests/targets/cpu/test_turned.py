"""Copies that turn a matrix: by blocks in registers where both sides have rows in one piece, else as any nest."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.compile import lower
from tilelang.target import Target

BY_BLOCKS = re.compile(r"tl\.transpose\.(?:16|32)\.\d+_(\d+)_")


def turned(rows: int, columns: int, pad: int = 0, dtype: str = "float32", swapped: bool = False, scale: int = 1):
    """B[z, i, j] = A[z, j, i], by a tile whose rows have `pad` elements more; the loops in either order."""
    planes = T.dynamic("planes")

    @T.prim_func
    def main(A: T.Tensor((planes, columns, rows), dtype), B: T.Tensor((planes, rows, columns), dtype)):
        with T.Kernel(planes) as z:
            tile = T.alloc_shared((columns, rows + pad), dtype)
            T.copy(A[z, 0:columns, 0:rows], tile[0:columns, 0:rows])
            if swapped:
                for j, i in T.Parallel(columns, rows):
                    B[z, i, j] = tile[j, i] * scale if scale > 1 else tile[j, i]
            else:
                for i, j in T.Parallel(rows, columns):
                    B[z, i, j] = tile[j, i] * scale if scale > 1 else tile[j, i]

    return main


def by_blocks(func) -> bool:
    return bool(BY_BLOCKS.search(lower(func, Target("cpu", "x86-64-v3")).text()))


@pytest.mark.parametrize("dtype", ["float32", "int32", "float16"])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(("rows", "columns", "pad"), [(32, 16, 0), (37, 16, 0), (64, 32, 8), (41, 48, 3), (16, 128, 1)])
def test_turns(rows, columns, pad, dtype, swapped):
    func = turned(rows, columns, pad, dtype, swapped)
    assert by_blocks(func)
    a = (np.random.default_rng(0).standard_normal((3, columns, rows)) * 1000).astype(dtype)
    b = np.zeros((3, rows, columns), dtype)
    tilelang.compile(func, target="cpu")(a, b)
    np.testing.assert_array_equal(b, a.transpose(0, 2, 1))


@pytest.mark.parametrize(
    "options",
    [
        {"rows": 4, "columns": 64},
        {"rows": 37, "columns": 19},
        {"rows": 64, "columns": 64, "dtype": "int8"},
        {"rows": 64, "columns": 64, "scale": 2},
    ],
    ids=["too few", "no whole vectors", "of one byte", "with arithmetic"],
)
def test_others_are_plain_loops(options):
    func = turned(**options)
    assert not by_blocks(func)
    shape = 2, options["columns"], options["rows"]
    a = np.random.default_rng(0).standard_normal(shape).astype(options.get("dtype", "float32"))
    b = np.zeros((2, shape[2], shape[1]), a.dtype)
    tilelang.compile(func, target="cpu")(a, b)
    np.testing.assert_array_equal(b, a.transpose(0, 2, 1) * a.dtype.type(options.get("scale", 1)))


def test_guarded_elements_stay_guarded():
    """Where the copy may leave a tensor, its conditions are kept."""
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 32), "float32"), B: T.Tensor((32, 32), "float32")):
        with T.Kernel(1) as _:
            for i, j in T.Parallel(32, 32):
                B[i, j] = A[j, i]

    assert not by_blocks(main)
    a, b = np.random.default_rng(0).standard_normal((20, 32)).astype("float32"), np.full((32, 32), 7, "float32")
    tilelang.compile(main, target="cpu")(a, b)
    np.testing.assert_array_equal(b, np.pad(a.T, ((0, 0), (0, 12))))
