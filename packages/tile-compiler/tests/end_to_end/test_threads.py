"""Whole way: code that names threads, and control flow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang.language as T
from tile_compiler.compile import lower
from tile_compiler.errors import DivergentControl, LaneVaryingOperand, ParallelConflict

n = T.dynamic("n")


def test_simt_kernel(rng: Any, check: Any) -> None:
    @T.prim_func
    def axpy(a: T.float32, X: T.Tensor((n,), "float32"), Y: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 64), threads=64) as bx:
            i = bx * 64 + T.get_thread_binding()
            if i < n:
                Y[i] = a * X[i] + Y[i]

    x, y = rng.standard_normal((2, 150)).astype("float32")
    check(axpy, [2.5, x, y])


def test_exchange_through_shared_memory(rng: Any, check: Any) -> None:
    @T.prim_func
    def reverse(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(2, threads=32) as bx:
            tx = T.get_thread_binding()
            s = T.alloc_shared((32,), "float32")
            kept = T.alloc_local((2,), "float32")
            kept[0] = A[bx * 32 + tx]
            s[tx] = kept[0]
            T.sync_threads()
            kept[1] = s[31 - tx]
            B[bx * 32 + tx] = kept[0] + 2 * kept[1]

    check(reverse, [rng.standard_normal(64).astype("float32"), np.zeros(64, "float32")])


def test_tree_reduction(rng: Any, check: Any) -> None:
    @T.prim_func
    def total(A: T.Tensor((64,), "float32"), B: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            s = T.alloc_shared((64,), "float32")
            s[tx] = A[tx]
            T.sync_threads()
            for step in T.serial(6):
                half = T.shift_right(32, step)
                if tx < half:
                    s[tx] = s[tx] + s[tx + half]
                T.sync_threads()
            if tx == 0:
                B[0] = s[0]

    a = rng.standard_normal(64).astype("float32")
    got = check(total, [a, np.zeros(1, "float32")])
    np.testing.assert_allclose(got[1][0], a.sum(), rtol=1e-4, atol=1e-5)


def test_values_in_place_are_read_before_they_are_written(rng: Any, check: Any) -> None:
    @T.prim_func
    def rotate(A: T.Tensor((32,), "float32"), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            tx = T.get_thread_binding()
            s = T.alloc_shared((32,), "float32")
            s[tx] = A[tx]
            s[tx] = s[(tx + 1) % 32]
            B[tx] = s[tx]

    a = rng.standard_normal(32).astype("float32")
    got = check(rotate, [a, np.zeros(32, "float32")])
    np.testing.assert_array_equal(got[1], np.roll(a, -1))


def test_tile_operators_beside_thread_code(rng: Any, check: Any) -> None:
    @T.prim_func
    def mixed(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            tx = T.get_thread_binding()
            s = T.alloc_shared((64,), "float32")
            r = T.alloc_fragment((1,), "float32")
            scale = T.alloc_var("float32", init=1.0)
            own = A[tx] * 2
            for step in T.serial(3):
                T.copy(A, s)
                s[tx] = s[tx] * scale + own
                T.reduce_max(s, r, dim=0)
                scale = r[0]
            B[tx] = scale + own + tx

    check(mixed, [rng.standard_normal(64).astype("float32"), np.zeros(64, "float32")])


def test_two_dimensional_threads(rng: Any, check: Any) -> None:
    @T.prim_func
    def transpose(A: T.Tensor((8, 16), "float32"), B: T.Tensor((16, 8), "float32")):
        with T.Kernel(1, threads=(16, 8)) as bx:
            tx = T.get_thread_binding(0)
            ty = T.get_thread_binding(1)
            B[tx, ty] = A[ty, tx]

    a = rng.standard_normal((8, 16)).astype("float32")
    np.testing.assert_array_equal(check(transpose, [a, np.zeros((16, 8), "float32")])[1], a.T)


def test_while_break_and_continue(rng: Any, check: Any) -> None:
    @T.prim_func
    def find(A: T.Tensor((40,), "int32"), B: T.Tensor((3,), "int32")):
        with T.Kernel(1) as bx:
            i = T.alloc_var("int32", init=0)
            total = T.alloc_var("int32", init=0)
            while i < 40:
                i = i + 1
                if A[i - 1] < 0:
                    continue
                if A[i - 1] > 90:
                    break
                total = total + A[i - 1]
            B[0] = i
            B[1] = total
            for k in T.serial(40):
                if A[k] > 50:
                    B[2] = k
                    break

    check(find, [rng.integers(-20, 100, 40).astype("int32"), np.zeros(3, "int32")])


def test_control_that_differs_around_block_work_is_an_error() -> None:
    @T.prim_func
    def wrong(A: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            s = T.alloc_shared((32,), "float32")
            if T.get_thread_binding() < 16:
                T.copy(A, s)

    with pytest.raises(DivergentControl, match=r"test_threads.py:\d+"):
        lower(wrong, "cpu")


def test_operands_that_differ_are_an_error() -> None:
    @T.prim_func
    def wrong(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32) as bx:
            s = T.alloc_shared((32,), "float32")
            T.copy(A[T.get_thread_binding()], s)

    with pytest.raises(LaneVaryingOperand, match="tx"):
        lower(wrong, "cpu")


def test_conflicting_iterations_are_an_error() -> None:
    @T.prim_func
    def wrong(A: T.Tensor((8, 8), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1) as bx:
            for i, j in T.Parallel(8, 8):
                B[i] = A[i, j]

    with pytest.raises(ParallelConflict, match="loop variable j"):
        lower(wrong, "cpu")


def test_device_assert_and_print(capfd: Any, run_compiled: Any) -> None:
    from tile_runtime.errors import KernelAssertError

    @T.prim_func
    def checked(A: T.Tensor((8,), "float32"), limit: T.float32):
        with T.Kernel(1) as bx:
            s = T.alloc_shared((8,), "float32")
            T.copy(A, s)
            T.print(s, msg="tile")
            for i in T.serial(8):
                T.device_assert(s[i] < limit, "too large")

    a = np.arange(8, dtype="float32")
    run_compiled(checked, [a, 10.0])
    assert "tile" in capfd.readouterr().out
    with pytest.raises(KernelAssertError, match="too large"):
        run_compiled(checked, [a, 5.0])
