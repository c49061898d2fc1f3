"""Whole way: parallel loops over global memory and tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang.language as T

n, m = T.dynamic("n"), T.dynamic("m")


def test_add_with_a_tail(rng: Any, check: Any) -> None:
    @T.prim_func
    def add(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            for i in T.Parallel(64):
                C[bx * 64 + i] = A[bx * 64 + i] + B[bx * 64 + i]

    a, b = rng.standard_normal((2, 150)).astype("float32")
    got = check(add, [a, b, np.zeros(150, "float32")])
    np.testing.assert_array_equal(got[2], a + b)


def test_conditions_of_different_sizes_are_split(rng: Any, check: Any) -> None:
    @T.prim_func
    def add(A: T.Tensor((n,), "float32"), B: T.Tensor((m,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 64)) as bx:
            for i in T.Parallel(64):
                C[bx * 64 + i] = A[bx * 64 + i] + B[bx * 64 + i]

    a, b = rng.standard_normal(150).astype("float32"), rng.standard_normal(90).astype("float32")
    check(add, [a, b, np.zeros(150, "float32")])


def test_a_condition_of_a_loop_inside(rng: Any, check: Any) -> None:
    """Whether row `step * 4 + v` is there is known in the loop over v alone."""

    @T.prim_func
    def sums_of_columns(A: T.Tensor((m, n), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 32)) as bx:
            total = T.alloc_fragment((32,), "float32")
            T.clear(total)
            for step in T.serial(T.ceildiv(m, 4)):
                for j in T.Parallel(32):
                    for v in T.serial(4):
                        total[j] += A[step * 4 + v, bx * 32 + j]
            T.copy(total, B[bx * 32])

    a = rng.integers(-9, 9, (7, 45)).astype("float32")
    got = check(sums_of_columns, [a, np.zeros(45, "float32")])
    np.testing.assert_array_equal(got[1], a.sum(0))


def test_rows_and_columns(rng: Any, check: Any) -> None:
    @T.prim_func
    def scale(A: T.Tensor((m, n), "float16"), S: T.Tensor((m,), "float32"), B: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 4), threads=32) as (bx, by):
            for i, j in T.Parallel(4, 32):
                B[by * 4 + i, bx * 32 + j] = A[by * 4 + i, bx * 32 + j] * S[by * 4 + i] + 1

    a = rng.standard_normal((7, 45)).astype("float16")
    check(scale, [a, rng.standard_normal(7).astype("float32"), np.zeros((7, 45), "float32")])


def test_shifted_windows_have_two_edges(rng: Any, check: Any) -> None:
    @T.prim_func
    def blur(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 32)) as bx:
            for i in T.Parallel(32):
                B[bx * 32 + i] = A[bx * 32 + i - 1] + 2 * A[bx * 32 + i] + A[bx * 32 + i + 1]

    a = rng.standard_normal(75).astype("float32")
    got = check(blur, [a, np.zeros(75, "float32")])
    padded = np.pad(a, 1)
    np.testing.assert_allclose(got[1], padded[:-2] + 2 * a + padded[2:], rtol=1e-6)


def test_causal_mask_and_gather(rng: Any, check: Any) -> None:
    @T.prim_func
    def mask(A: T.Tensor((16, 32), "float32"), I: T.Tensor((32,), "int32"), B: T.Tensor((16, 32), "float32")):
        with T.Kernel(1, threads=32) as bx:
            s = T.alloc_fragment((16, 32), "float32")
            for i, j in T.Parallel(16, 32):
                s[i, j] = T.if_then_else(i >= j, A[i, I[j]], -T.infinity("float32"))
            for i, j in T.Parallel(16, 32):
                if j < 20:
                    B[i, j] = T.exp(s[i, j])
                else:
                    B[i, j] = s[i, j] + i

    index = rng.integers(-3, 40, 32).astype("int32")  # some outside: they read 0
    check(mask, [rng.standard_normal((16, 32)).astype("float32"), index, np.zeros((16, 32), "float32")])


def test_private_values_and_inner_loops(rng: Any, check: Any) -> None:
    @T.prim_func
    def poly(A: T.Tensor((n,), "float32"), W: T.Tensor((5,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 32)) as bx:
            for i in T.Parallel(32):
                acc = T.alloc_var("float32", init=0.0)
                x = A[bx * 32 + i]
                for k in T.serial(5):
                    acc = acc * x + W[k]
                B[bx * 32 + i] = acc

    a = rng.standard_normal(70).astype("float32")
    w = rng.standard_normal(5).astype("float32")
    got = check(poly, [a, w, np.zeros(70, "float32")])
    np.testing.assert_allclose(got[2], np.polyval(w, a), rtol=1e-4, atol=1e-5)


def test_division_is_not_executed_where_it_traps(rng: Any, check: Any) -> None:
    @T.prim_func
    def div(A: T.Tensor((32,), "int32"), B: T.Tensor((32,), "int32"), C: T.Tensor((32,), "int32")):
        with T.Kernel(1) as bx:
            for i in T.Parallel(32):
                C[i] = T.if_then_else(B[i] != 0, A[i] // B[i], -1)

    check(
        div, [rng.integers(-50, 50, 32).astype("int32"), rng.integers(-2, 3, 32).astype("int32"), np.zeros(32, "int32")]
    )


def test_transposed_access_picks_a_loop_order(rng: Any, check: Any) -> None:
    @T.prim_func
    def transpose(A: T.Tensor((m, n), "float32"), B: T.Tensor((n, m), "float32")):
        with T.Kernel(T.ceildiv(n, 16), T.ceildiv(m, 16)) as (bx, by):
            for i, j in T.Parallel(16, 16):
                B[bx * 16 + i, by * 16 + j] = A[by * 16 + j, bx * 16 + i]

    a = rng.standard_normal((20, 37)).astype("float32")
    np.testing.assert_array_equal(check(transpose, [a, np.zeros((37, 20), "float32")])[1], a.T)


def test_vectorized_and_unrolled_loops(rng: Any, check: Any) -> None:
    @T.prim_func
    def twice(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 32)) as bx:
            for k in T.unroll(4):
                for v in T.vectorized(8):
                    B[bx * 32 + k * 8 + v] = A[bx * 32 + k * 8 + v] * 2

    a = rng.standard_normal(43).astype("float32")
    np.testing.assert_array_equal(check(twice, [a, np.zeros(43, "float32")])[1], 2 * a)


def test_unrolled_loops_inside_a_parallel_one(rng: Any, check: Any, capfd: Any) -> None:
    """Registers hold the sums of each row; LLVM has nothing to say about a hint that it ignores."""

    @T.prim_func
    def sums(A: T.Tensor((3, n), "float32"), S: T.Tensor((3,), "float32")):
        with T.Kernel(1):
            parts = T.alloc_fragment((3, 16), "float32")
            s = T.alloc_fragment((3,), "float32")
            T.clear(parts)
            for k in T.serial(T.ceildiv(n, 16)):
                for j in T.Parallel(16):
                    for r in T.unroll(3):
                        parts[r, j] += T.if_then_else(k * 16 + j < n, A[r, k * 16 + j], 0.0)
            T.reduce_sum(parts, s, dim=1)
            T.copy(s, S)

    a = rng.standard_normal((3, 43)).astype("float32")
    np.testing.assert_allclose(check(sums, [a, np.zeros(3, "float32")], rtol=1e-5)[1], a.sum(1), rtol=1e-4)
    assert "nroll" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64", "float8_e4m3fn"]
)
def test_element_types(rng: Any, dtype: str, check: Any) -> None:
    @T.prim_func
    def convert(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), dtype), C: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 64)) as bx:
            for i in T.Parallel(64):
                B[bx * 64 + i] = T.cast(A[bx * 64 + i] * 3, dtype)
            for i in T.Parallel(64):
                C[bx * 64 + i] = T.cast(B[bx * 64 + i], "float32") + 1

    a = np.abs(rng.standard_normal(100)).astype("float32")
    empty = np.zeros(100, T.dtype(dtype).as_numpy())
    check(convert, [a, empty, np.zeros(100, "float32")], rtol=1e-6)


def test_strided_tensor(rng: Any, check: Any) -> None:
    s = T.dynamic("s")

    @T.prim_func
    def double(A: T.StridedTensor((m, n), (s, 1), "float32"), B: T.Tensor((m, n), "float32")):
        with T.Kernel(m) as bx:
            for j in T.Parallel(40):
                B[bx, j] = A[bx, j] * 2

    a = rng.standard_normal((5, 64)).astype("float32")[:, :33]
    np.testing.assert_array_equal(check(double, [a, np.zeros((5, 33), "float32")])[1], 2 * a)
