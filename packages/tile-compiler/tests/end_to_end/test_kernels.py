"""Whole way: small kernels of the kinds that users write."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tilelang.language as T

n, m = T.dynamic("n"), T.dynamic("m")


@pytest.fixture
def check(check: Any) -> Any:
    """After every pass in any run."""
    return functools.partial(check, every=True)


def test_softmax(rng: Any, check: Any) -> None:
    @T.prim_func
    def softmax(A: T.Tensor((m, n), "float16"), B: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(m, 4), threads=128) as bx:
            s = T.alloc_shared((4, 32), "float32")
            largest, total = T.alloc_fragment((4,), "float32"), T.alloc_fragment((4,), "float32")
            T.annotate_safe_value({A: -T.infinity("float16")})
            T.copy(A[bx * 4, 0], s)
            T.reduce_max(s, largest, dim=1)
            for i, j in T.Parallel(4, 32):
                s[i, j] = T.exp(s[i, j] - largest[i])
            T.reduce_sum(s, total, dim=1)
            for i, j in T.Parallel(4, 32):
                s[i, j] /= total[i]
            T.copy(s, B[bx * 4, 0])

    a = rng.standard_normal((6, 27)).astype("float16")
    got = check(softmax, [a, np.zeros((6, 27), "float32")])
    np.testing.assert_allclose(got[1].sum(axis=1), 1, rtol=1e-5)


def test_dequantise(rng: Any, check: Any) -> None:
    @T.prim_func
    def unpack(B: T.Tensor((8, 16), "uint8"), O: T.Tensor((8, 32), "float16")):
        with T.Kernel(2, threads=32) as bx:
            s, w = T.alloc_shared((4, 16), "uint8"), T.alloc_fragment((4, 32), "float16")
            T.copy(B[bx * 4, 0], s)
            for i, j in T.Parallel(4, 32):
                code = (s[i, j // 2] >> T.cast((j % 2) * 4, "uint8")) & T.cast(15, "uint8")
                w[i, j] = T.cast(code, "float16") - 8
            T.copy(w, O[bx * 4, 0])

    check(unpack, [rng.integers(0, 256, (8, 16)).astype("uint8"), np.zeros((8, 32), "float16")])


def test_packed_types(rng: Any, check: Any) -> None:
    @T.prim_func
    def widen(A: T.Tensor((8, 32), "uint4"), B: T.Tensor((8, 32), "int8")):
        with T.Kernel(2) as bx:
            s = T.alloc_shared((4, 32), "uint4")
            T.copy(A[bx * 4, 0], s)
            for i, j in T.Parallel(4, 32):
                B[bx * 4 + i, j] = T.cast(s[i, j], "int8")

    check(widen, [rng.integers(0, 256, (8, 16)).astype("uint8"), np.zeros((8, 32), "int8")])


def test_matrix_times_vector_by_threads(rng: Any, check: Any) -> None:
    @T.prim_func
    def gemv(X: T.Tensor((n,), "float32"), A: T.Tensor((m, n), "float32"), Y: T.Tensor((m,), "float32")):
        with T.Kernel(T.ceildiv(m, 4), threads=(8, 4)) as bx:
            tx, ty = T.get_thread_binding(0), T.get_thread_binding(1)
            acc, s = T.alloc_local((1,), "float32"), T.alloc_shared((4, 8), "float32")
            acc[0] = 0
            for k in T.serial(T.ceildiv(n, 8)):
                acc[0] += X[k * 8 + tx] * A[bx * 4 + ty, k * 8 + tx]
            s[ty, tx] = acc[0]
            T.sync_threads()
            if tx == 0:
                acc[0] = 0
                for k in T.serial(8):
                    acc[0] += s[ty, k]
                Y[bx * 4 + ty] = acc[0]

    x, a = rng.standard_normal(27).astype("float32"), rng.standard_normal((10, 27)).astype("float32")
    got = check(gemv, [x, a, np.zeros(10, "float32")])
    np.testing.assert_allclose(got[2], a @ x, rtol=1e-4, atol=1e-5)


def test_pages_found_through_a_table(rng: Any, check: Any) -> None:
    @T.prim_func
    def gather(A: T.Tensor((3, 4, 20), "float32"), I: T.Tensor((5,), "int32"), B: T.Tensor((5, 4, 20), "float32")):
        with T.Kernel(5, threads=32) as bx:
            s = T.alloc_shared((4, 20), "float32")
            T.copy(A[I[bx], :, :], s)
            T.copy(s, B[bx, :, :])

    a, table = rng.standard_normal((3, 4, 20)).astype("float32"), np.array([2, 0, 7, -1, 1], "int32")
    got = check(gather, [a, table, np.ones((5, 4, 20), "float32")])
    np.testing.assert_array_equal(got[2][2], 0)  # page 7 does not exist


def test_extents_known_at_the_launch(rng: Any, check: Any) -> None:
    @T.prim_func
    def double(rows: T.int32, A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(m, rows)) as bx:
            for r in T.serial(rows):
                for j in T.Parallel(n):
                    B[bx * rows + r, j] = A[bx * rows + r, j] * 2

    a = rng.standard_normal((5, 21)).astype("float32")
    np.testing.assert_array_equal(check(double, [2, a, np.zeros_like(a)])[2], 2 * a)


def test_integers_wrap_and_negate(rng: Any, check: Any) -> None:
    @T.prim_func
    def mixed(A: T.Tensor((n,), "int32"), B: T.Tensor((n,), "int32"), C: T.Tensor((n,), "int32")):
        with T.Kernel(T.ceildiv(n, 16)) as bx:
            for i in T.Parallel(16):
                C[bx * 16 + i] = T.max(A[bx * 16 + i] - B[bx * 16 + i], -5) * 3 - T.abs(A[bx * 16 + i])

    a, b = rng.integers(-(2**31), 2**31, (2, 50)).astype("int32")
    check(mixed, [a, b, np.zeros(50, "int32")])
