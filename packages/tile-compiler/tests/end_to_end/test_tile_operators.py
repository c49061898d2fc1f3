"""Whole way: copies, fills, products, reductions, scans, atomics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang.language as T

n, m, k = T.dynamic("n"), T.dynamic("m"), T.dynamic("k")


@pytest.mark.parametrize(
    "dtypes", [("float32", "float32"), ("float16", "float32"), ("float32", "bfloat16"), ("int32", "int8")]
)
def test_copy_through_all_scopes(rng: Any, dtypes: tuple[str, str], check: Any) -> None:
    source, result = dtypes

    @T.prim_func
    def copies(A: T.Tensor((m, n), source), B: T.Tensor((m, n), result)):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 8), threads=32) as (bx, by):
            s = T.alloc_shared((8, 32), source)
            f = T.alloc_fragment((8, 32), result)
            T.copy(A[by * 8, bx * 32], s)
            T.copy(s, f)
            T.copy(f, B[by * 8, bx * 32])

    a = (10 * rng.standard_normal((13, 45))).astype(T.dtype(source).as_numpy())
    check(copies, [a, np.zeros((13, 45), T.dtype(result).as_numpy())])


def test_copy_of_slices_and_single_rows(rng: Any, check: Any) -> None:
    @T.prim_func
    def copies(A: T.Tensor((3, n, 4, 16), "float32"), B: T.Tensor((3, 4, n, 16), "float32")):
        with T.Kernel(T.ceildiv(n, 8), 4, 3) as (bx, h, b):
            s = T.alloc_shared((8, 16), "float32")
            T.copy(A[b, bx * 8 : (bx + 1) * 8, h, :], s)
            T.copy(s, B[b, h, bx * 8 : (bx + 1) * 8, :])

    a = rng.standard_normal((3, 11, 4, 16)).astype("float32")
    got = check(copies, [a, np.zeros((3, 4, 11, 16), "float32")])
    np.testing.assert_array_equal(got[1], a.transpose(0, 2, 1, 3))


def test_copy_within_one_buffer(rng: Any, check: Any) -> None:
    @T.prim_func
    def shift(A: T.Tensor((32,), "float32"), B: T.Tensor((32,), "float32")):
        with T.Kernel(1) as bx:
            s = T.alloc_shared((32,), "float32")
            T.copy(A, s)
            T.copy(s[0:31], s[1:32])
            T.copy(s, B)

    check(shift, [rng.standard_normal(32).astype("float32"), np.zeros(32, "float32")])


def test_safe_value_is_read_outside(rng: Any, check: Any) -> None:
    @T.prim_func
    def rowmax(A: T.Tensor((m, n), "float16"), B: T.Tensor((m,), "float32")):
        with T.Kernel(T.ceildiv(m, 4), threads=32) as bx:
            T.annotate_safe_value({A: -T.infinity("float16")})
            s = T.alloc_fragment((4, 32), "float32")
            r = T.alloc_fragment((4,), "float32")
            T.copy(A[bx * 4, 0], s)
            T.reduce_max(s, r, dim=1)
            T.copy(r, B[bx * 4])

    a = -1 - np.abs(rng.standard_normal((7, 21))).astype("float16")
    got = check(rowmax, [a, np.zeros(7, "float32")])
    np.testing.assert_array_equal(got[1], a.max(axis=1))


@pytest.mark.parametrize("shape", [(16, 16, 16), (24, 40, 8), (7, 33, 5)])
@pytest.mark.parametrize("transpose", [(False, False), (True, False), (False, True)])
def test_gemm_with_remainders(rng: Any, shape: tuple[int, int, int], transpose: tuple[bool, bool], check: Any) -> None:
    rows, cols, depth = shape
    ta, tb = transpose

    @T.prim_func
    def product(
        A: T.Tensor((depth, rows) if ta else (rows, depth), "float16"),
        B: T.Tensor((cols, depth) if tb else (depth, cols), "float16"),
        C: T.Tensor((rows, cols), "float32"),
    ):
        with T.Kernel(1, threads=32) as bx:
            a = T.alloc_shared((depth, rows) if ta else (rows, depth), "float16")
            b = T.alloc_shared((cols, depth) if tb else (depth, cols), "float16")
            c = T.alloc_fragment((rows, cols), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            for _ in T.serial(2):
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb)
            T.copy(c, C)

    a = rng.standard_normal((depth, rows) if ta else (rows, depth)).astype("float16")
    b = rng.standard_normal((cols, depth) if tb else (depth, cols)).astype("float16")
    check(product, [a, b, np.zeros((rows, cols), "float32")], rtol=1e-3, atol=1e-3, passes=False)


def test_tiled_gemm_over_edges(rng: Any, check: Any) -> None:
    @T.prim_func
    def matmul(A: T.Tensor((m, k), "float32"), B: T.Tensor((k, n), "float32"), C: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 16), threads=128) as (bx, by):
            a = T.alloc_shared((16, 16), "float32")
            b = T.alloc_shared((16, 32), "float32")
            c = T.alloc_fragment((16, 32), "float32")
            for kk in T.Pipelined(T.ceildiv(k, 16), num_stages=2):
                T.copy(A[by * 16, kk * 16], a)
                T.copy(B[kk * 16, bx * 32], b)
                T.gemm(a, b, c, clear_accum=kk == 0)
            T.copy(c, C[by * 16, bx * 32])

    a, b = rng.standard_normal((21, 37)).astype("float32"), rng.standard_normal((37, 50)).astype("float32")
    check(matmul, [a, b, np.zeros((21, 50), "float16")], rtol=2e-3, atol=2e-3, passes=False)


def test_gemm_on_global_operands(rng: Any, check: Any) -> None:
    @T.prim_func
    def product(A: T.Tensor((20, 12), "float32"), B: T.Tensor((12, 24), "float32"), C: T.Tensor((20, 24), "float32")):
        with T.Kernel(1) as bx:
            T.gemm(A, B, C)

    args = [rng.standard_normal(s).astype("float32") for s in ((20, 12), (12, 24), (20, 24))]
    check(product, args, rtol=1e-4, atol=1e-4, passes=False)


def test_integer_gemm(rng: Any, check: Any) -> None:
    @T.prim_func
    def product(A: T.Tensor((16, 32), "int8"), B: T.Tensor((24, 32), "int8"), C: T.Tensor((16, 24), "int32")):
        with T.Kernel(1, threads=32) as bx:
            a = T.alloc_shared((16, 32), "int8")
            b = T.alloc_shared((24, 32), "int8")
            c = T.alloc_fragment((16, 24), "int32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c, transpose_B=True, clear_accum=True)
            T.copy(c, C)

    a, b = rng.integers(-128, 128, (16, 32)).astype("int8"), rng.integers(-128, 128, (24, 32)).astype("int8")
    check(product, [a, b, np.zeros((16, 24), "int32")], passes=False)


@pytest.mark.parametrize("kind", ["sum", "max", "min", "prod", "abssum", "absmax"])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_reduce(rng: Any, kind: str, dim: int, dtype: str, check: Any) -> None:
    reduce = getattr(T, f"reduce_{kind}")
    kept = 5 if dim == 1 else 21

    @T.prim_func
    def reduction(A: T.Tensor((5, 21), dtype), B: T.Tensor((kept,), dtype), C: T.Tensor((kept,), dtype)):
        with T.Kernel(1, threads=32) as bx:
            a = T.alloc_fragment((5, 21), dtype)
            r = T.alloc_fragment((kept,), dtype)
            T.copy(A, a)
            reduce(a, r, dim=dim)
            T.copy(r, B)
            T.copy(C, r)
            reduce(a, r, dim=dim, clear=False)
            T.copy(r, C)

    a = (2 * rng.standard_normal((5, 21))).astype(dtype)
    c = (2 * rng.standard_normal(kept)).astype(dtype)
    tolerance = 2e-3 if dtype == "float16" else 1e-5
    check(reduction, [a, np.zeros(kept, dtype), c], rtol=tolerance, atol=tolerance, passes=dtype != "float16")


@pytest.mark.parametrize("kind", ["bitand", "bitor", "bitxor"])
def test_bitwise_reduce(rng: Any, kind: str, check: Any) -> None:
    reduce = getattr(T, f"reduce_{kind}")

    @T.prim_func
    def reduction(A: T.Tensor((4, 37), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(1) as bx:
            a = T.alloc_fragment((4, 37), "int32")
            r = T.alloc_fragment((4,), "int32")
            T.copy(A, a)
            reduce(a, r, dim=1)
            T.copy(r, B)

    check(reduction, [rng.integers(0, 1 << 20, (4, 37)).astype("int32"), np.zeros(4, "int32")], passes=False)


@pytest.mark.parametrize("propagate", [False, True])
def test_reduce_and_nan(propagate: bool, check: Any) -> None:
    @T.prim_func
    def reduction(A: T.Tensor((3, 20), "float32"), B: T.Tensor((3,), "float32"), C: T.Tensor((20,), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_fragment((3, 20), "float32")
            r = T.alloc_fragment((3,), "float32")
            c = T.alloc_fragment((20,), "float32")
            T.copy(A, a)
            T.reduce_max(a, r, dim=1, nan_propagate=propagate)
            T.reduce_min(a, c, dim=0, nan_propagate=propagate)
            T.copy(r, B)
            T.copy(c, C)

    a = np.arange(60, dtype="float32").reshape(3, 20)
    a[0, 3] = a[1, 19] = a[:, 7] = np.nan
    check(reduction, [a, np.zeros(3, "float32"), np.zeros(20, "float32")])


@pytest.mark.parametrize("kind", ["cumsum", "cummax", "cummin", "cumprod"])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(rng: Any, kind: str, dim: int, reverse: bool, check: Any) -> None:
    scan = getattr(T, kind)

    @T.prim_func
    def scanned(A: T.Tensor((9, 16), "float32"), B: T.Tensor((9, 16), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_shared((9, 16), "float32")
            b = T.alloc_fragment((9, 16), "float32")
            T.copy(A, a)
            scan(a, b, dim=dim, reverse=reverse)
            T.copy(b, B)

    a = rng.uniform(0.5, 1.5, (9, 16)).astype("float32")
    check(scanned, [a, np.zeros((9, 16), "float32")], passes=kind == "cumsum")


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_atomic_updates_from_many_blocks(rng: Any, dtype: str, check: Any) -> None:
    @T.prim_func
    def histogram(A: T.Tensor((64, 16), dtype), S: T.Tensor((16,), dtype), X: T.Tensor((1,), dtype)):
        with T.Kernel(16, threads=16) as bx:
            f = T.alloc_fragment((4, 16), dtype)
            r = T.alloc_fragment((16,), dtype)
            T.copy(A[bx * 4, 0], f)
            T.reduce_sum(f, r, dim=0)
            T.atomic_add(S, r)
            for i in T.Parallel(16):
                T.atomic_max(X[0], r[i])

    a = rng.integers(-4, 5, (64, 16)).astype(dtype)
    got = check(histogram, [a, np.zeros(16, dtype), np.zeros(1, dtype)], passes=False)
    np.testing.assert_array_equal(got[1], a.sum(axis=0).astype(dtype))


def test_atomics_on_shared_memory(rng: Any, check: Any) -> None:
    @T.prim_func
    def histogram(A: T.Tensor((64,), "int32"), H: T.Tensor((8,), "int32"), P: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((8,), "int32")
            tx = T.get_thread_binding()
            T.clear(s)
            old = T.atomic_add(s[A[tx]], 1, return_prev=True)
            P[tx] = old * 0
            T.sync_threads()
            T.copy(s, H)

    a = rng.integers(0, 8, 64).astype("int32")
    got = check(histogram, [a, np.zeros(8, "int32"), np.ones(64, "int32")])
    np.testing.assert_array_equal(got[1], np.bincount(a, minlength=8))


def test_views_share_storage(rng: Any, check: Any) -> None:
    @T.prim_func
    def reshaped(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1) as bx:
            s = T.alloc_shared((64,), "float32")
            q = T.reshape(s, (8, 8))
            v = T.view(s, (64,), "int32")
            T.copy(A, s)
            for i, j in T.Parallel(8, 8):
                q[i, j] = q[i, j] * 2
            T.copy(v, B)

    a = rng.standard_normal(64).astype("float32")
    got = check(reshaped, [a, np.zeros(64, "int32")])
    np.testing.assert_array_equal(got[1], (2 * a).view("int32"))


def test_two_kernels_and_a_workspace(rng: Any, check: Any) -> None:
    @T.prim_func
    def split(A: T.Tensor((m, 32), "float32"), B: T.Tensor((32,), "float32")):
        partial = T.alloc_global((T.ceildiv(m, 4), 32), "float32")
        with T.Kernel(T.ceildiv(m, 4)) as bx:
            f = T.alloc_fragment((4, 32), "float32")
            r = T.alloc_fragment((32,), "float32")
            T.copy(A[bx * 4, 0], f)
            T.reduce_sum(f, r, dim=0)
            T.copy(r, partial[bx, 0])
        with T.Kernel(1) as bx:
            for j in T.Parallel(32):
                acc = T.alloc_var("float32", init=0.0)
                for i in T.serial(T.ceildiv(m, 4)):
                    acc = acc + partial[i, j]
                B[j] = acc

    a = rng.standard_normal((18, 32)).astype("float32")
    got = check(split, [a, np.zeros(32, "float32")], passes=False)
    np.testing.assert_allclose(got[1], a.sum(axis=0), rtol=1e-5, atol=1e-5)
