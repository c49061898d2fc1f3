"""What must not be optimised away, and old content that enters exactly once: random shapes, threads and types."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from test_emulated import agree

import tilelang.language as T

SIZES = (1, 2, 3, 5, 7, 8, 16, 17, 30, 33, 64)
THREADS = (1, 16, 33, 48, 64, 96, 100, 128)
DTYPES = ("float32", "float16", "bfloat16", "int32", "int8", "uint8", "int64")


def case(seed: int) -> tuple[tuple[int, ...], int, int, str]:
    """(shape, dimension, threads, type)"""
    pick = random.Random(seed)
    shape = tuple(pick.choice(SIZES) for _ in range(pick.choice((1, 2, 2, 3))))
    shape = shape if np.prod(shape) <= 2048 else shape[:2]
    return shape, pick.randrange(len(shape)), pick.choice(THREADS), pick.choice(DTYPES)


def numbers(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    if "float" in dtype:
        import ml_dtypes

        values = rng.uniform(0.5, 1.5, shape) * rng.choice([-1, 1], shape)
        return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    return rng.integers(1 if dtype.startswith("u") else -120, 120, shape).astype(dtype)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("clear", [True, False])
def test_reductions(check: Any, seed: int, clear: bool) -> None:
    shape, dim, threads, dtype = case(seed)
    kind = ("sum", "max", "min", "abssum", "absmax", "prod")[seed % 6]
    kept = (*shape[:dim], *shape[dim + 1 :]) or (1,)

    @T.prim_func
    def reduce(A: T.Tensor(shape, dtype), S: T.Tensor(kept, dtype)):
        with T.Kernel(1, threads=threads):
            a = T.alloc_fragment(shape, dtype)
            s = T.alloc_fragment(kept, dtype)
            T.copy(A, a)
            T.copy(S, s)
            T.reduce(a, s, kind, dim=dim, clear=clear)
            T.copy(s, S)

    rng = np.random.default_rng(seed)
    tolerance = 2e-2 if "16" in dtype else 1e-5
    check(reduce, [numbers(rng, shape, dtype), numbers(rng, kept, dtype)], tolerance, tolerance, passes=False)


@pytest.mark.parametrize("seed", range(20, 30))
def test_scans(check: Any, seed: int) -> None:
    shape, dim, threads, dtype = case(seed)
    scan, reverse = (T.cumsum, T.cummax, T.cummin, T.cumprod)[seed % 4], bool(seed // 4 % 2)

    @T.prim_func
    def run(A: T.Tensor(shape, dtype), B: T.Tensor(shape, dtype)):
        with T.Kernel(1, threads=threads):
            a = T.alloc_fragment(shape, dtype)
            b = T.alloc_fragment(shape, dtype)
            T.copy(A, a)
            scan(a, b, dim=dim, reverse=reverse)
            T.copy(b, B)

    rng = np.random.default_rng(seed)
    tolerance = 2e-2 if "16" in dtype else 1e-5
    check(run, [numbers(rng, shape, dtype), numbers(rng, shape, dtype)], tolerance, tolerance, passes=False)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_products_with_zero_and_differences_of_equals_keep_nan(dtype: str) -> None:
    @T.prim_func
    def kept(A: T.Tensor((40,), dtype), B: T.Tensor((3, 40), dtype)):
        with T.Kernel(1, threads=48):
            a = T.alloc_fragment((40,), dtype)
            T.copy(A, a)
            for i in T.Parallel(40):
                B[0, i] = a[i] * 0
                B[1, i] = a[i] - a[i]
                B[2, i] = A[i] * 0 + (A[i] - A[i])

    values = np.random.default_rng(0).standard_normal(40).astype(dtype)
    values[[3, 17, 39]] = np.inf, -np.inf, np.nan
    agree(kept, "sm_80", [values, np.ones((3, 40), dtype)], 0)


@pytest.mark.parametrize(("rows", "cols", "threads"), [(4, 64, 128), (48, 3, 96), (5, 7, 48), (16, 33, 100)])
def test_one_row_for_many_threads_is_replicated(rng: Any, rows: int, cols: int, threads: int) -> None:
    """Figure 7 of the paper: a bias is held by every thread that has an element of its column."""

    @T.prim_func
    def biased(
        A: T.Tensor((rows, cols), "float32"), V: T.Tensor((cols,), "float32"), B: T.Tensor((rows, cols), "float32")
    ):
        with T.Kernel(1, threads=threads):
            a = T.alloc_fragment((rows, cols), "float32")
            bias = T.alloc_fragment((cols,), "float32")
            T.copy(A, a)
            T.copy(V, bias)
            for i, j in T.Parallel(rows, cols):
                a[i, j] += bias[j]
            T.copy(a, B)

    args = [rng.standard_normal(s).astype("float32") for s in ((rows, cols), (cols,), (rows, cols))]
    agree(biased, "sm_80", args, 1e-6)
