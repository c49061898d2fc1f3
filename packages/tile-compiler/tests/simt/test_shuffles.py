"""Threads of a warp that exchange values: the same in the interpreter, on the CPU, and in the text for each vendor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import DtypeError, InvalidArgument
from tilelang.interpreter import InterpreterError

THREADS = 64
WAYS = [
    ("cpu", "interpret"),
    ("cpu", "device"),
    ("cuda -arch=sm_80", "emulate"),
    ("cuda -arch=sm_90a", "emulate"),
    ("hip -mcpu=gfx942", "emulate"),
]


def compiled(func: Any, target: str, execution: str) -> Any:
    return tilelang.compile(func, target=target, execution=execution)


@pytest.mark.parametrize(("target", "execution"), WAYS)
def test_exchanges(target, execution):
    """Each row is one kind of exchange, against its definition."""
    mask = 0xFFFFFFFF

    @T.prim_func
    def main(A: T.Tensor((THREADS,), "float32"), H: T.Tensor((THREADS,), "float16"), L: T.Tensor((THREADS,), "int64"),
             B: T.Tensor((8, THREADS), "float32"), C: T.Tensor((THREADS,), "int64")):  # fmt: skip
        with T.Kernel(1, threads=(16, 4)):
            t = T.get_thread_binding(1) * 16 + T.get_thread_binding(0)
            x = A[t]
            B[0, t] = T.tvm_warp_shuffle(mask, x, t + 5, 32, 32)
            B[1, t] = T.tvm_warp_shuffle(-1, x, 3, 8, 32)
            B[2, t] = T.tvm_warp_shuffle_up(mask, x, 2, 16, 32)
            B[3, t] = T.tvm_warp_shuffle_down(mask, x, 3, 32, 32)
            B[4, t] = T.shfl_xor(x * 2, 5)
            B[5, t] = T.shfl_sync(H[t], 31)
            B[6, t] = T.shfl_up(x, 1) - T.shfl_down(x, 1)
            B[7, t] = T.get_lane_idx() + 100 * T.get_warp_idx() + 1000 * T.get_warp_idx_sync(16)
            C[t] = T.shfl_xor(L[t], 16)

    rng = np.random.default_rng(0)
    a = rng.standard_normal(THREADS).astype(np.float32)
    h = rng.standard_normal(THREADS).astype(np.float16)
    wide = rng.integers(-(2**60), 2**60, THREADS)
    b, c = np.zeros((8, THREADS), np.float32), np.zeros(THREADS, np.int64)
    compiled(main, target, execution)(a, h, wide, b, c)
    t = np.arange(THREADS)
    warp = t // 32 * 32
    up = lambda n, w: a[np.where(t % w >= n, t - n, t)]  # noqa: E731
    down = lambda n, w: a[np.where(t % w + n < w, np.minimum(t + n, THREADS - 1), t)]  # noqa: E731
    want = [
        a[warp + (t + 5) % 32],
        a[t // 8 * 8 + 3],
        up(2, 16),
        down(3, 32),
        2 * a[t ^ 5],
        h[warp + 31],
        up(1, 32) - down(1, 32),
        t % 32 + 100 * (t // 32) + 1000 * (t // 16),
    ]
    np.testing.assert_array_equal(b, np.stack(want).astype(np.float32))
    np.testing.assert_array_equal(c, wide[t ^ 16])


@pytest.mark.parametrize(("target", "execution"), WAYS)
def test_over_a_warp(target, execution):
    @T.prim_func
    def main(A: T.Tensor((THREADS,), "int32"), B: T.Tensor((5, THREADS), "int32"), E: T.Tensor((3, THREADS), "int32")):
        with T.Kernel(1, threads=THREADS):
            t = T.get_thread_binding()
            B[0, t] = T.warp_reduce_sum(A[t])
            B[1, t] = T.warp_reduce_max(A[t])
            B[2, t] = T.warp_reduce_min(A[t])
            B[3, t] = T.warp_reduce_bitand(A[t])
            B[4, t] = T.warp_reduce_bitor(A[t])
            if T.shuffle_elect(0):
                E[0, t] = 1
            if T.shuffle_elect(16):
                E[1, t] = 1
            E[2, t] = T.get_warp_group_idx(8)

    a = np.random.default_rng(0).integers(-1000, 1000, THREADS, np.int32)
    b, e = np.zeros((5, THREADS), np.int32), np.zeros((3, THREADS), np.int32)
    compiled(main, target, execution)(a, b, e)
    rows = a.reshape(2, 32)
    folded = [f(rows, axis=1) for f in (np.sum, np.max, np.min, np.bitwise_and.reduce, np.bitwise_or.reduce)]
    np.testing.assert_array_equal(b, np.stack([np.repeat(f, 32) for f in folded]))
    t = np.arange(THREADS)
    np.testing.assert_array_equal(e, [t == 0, t % 16 == 0, t // 32])


@pytest.mark.parametrize(("target", "execution"), [("cpu", "device"), ("cuda -arch=sm_80", "emulate")])
def test_one_warp_of_several_in_a_loop(target, execution):
    """Under a condition that holds for whole warps, and again in every iteration."""

    @T.prim_func
    def main(A: T.Tensor((4, THREADS), "float32"), B: T.Tensor((THREADS,), "float32")):
        with T.Kernel(1, threads=THREADS):
            t = T.get_thread_binding()
            total = T.alloc_var("float32", init=0.0)
            for k in T.serial(4):
                if t // 32 == 1:
                    total += T.shfl_xor(A[k, t], 1) * (k + 1)
            B[t] = total

    a = np.random.default_rng(0).standard_normal((4, THREADS)).astype(np.float32)
    b = np.full(THREADS, np.nan, np.float32)
    compiled(main, target, execution)(a, b)
    want = (a.astype(np.float64) * np.arange(1, 5)[:, None]).sum(0)[np.arange(THREADS) ^ 1]
    np.testing.assert_allclose(b, np.where(np.arange(THREADS) < 32, 0, want), rtol=1e-5, atol=1e-6)


def test_a_thread_that_does_not_come_by():
    @T.prim_func
    def main(A: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            t = T.get_thread_binding()
            if t < 16:
                A[t] = T.shfl_sync(A[t], 20)

    with pytest.raises(InterpreterError, match="thread 0 asks thread 20"):
        compiled(main, "cpu", "interpret")(np.zeros(32, np.float32))


@pytest.mark.parametrize(
    ("use", "error", "text"),
    [
        (lambda x: T.tvm_warp_shuffle(0xFFFF, x, 0), InvalidArgument, "for a part of the warp"),
        (lambda x: T.shfl_xor(x, 1, 24), InvalidArgument, "impossible width"),
        (lambda x: T.shfl_sync(x > 0, 1), DtypeError, "no number of 1 to 8 bytes"),
        (lambda x: T.shuffle_elect(-3), InvalidArgument, "impossible number of threads"),
    ],
)
def test_what_cannot_be_exchanged(use, error, text):
    with pytest.raises(error, match=text):

        @T.prim_func
        def main(A: T.Tensor((32,), "float32")):
            with T.Kernel(1, threads=32):
                use(A[T.get_thread_binding()])


def test_threads_that_nobody_has_counted():
    with pytest.raises(InvalidArgument, match="does not say how many threads"):

        @T.prim_func
        def main(A: T.Tensor((32,), "float32")):
            with T.Kernel(1):
                A[0] = T.shfl_xor(A[0], 1)


def test_the_text_compiles_for_the_device():
    @T.prim_func
    def main(A: T.Tensor((THREADS,), "float16"), B: T.Tensor((THREADS,), "float16")):
        with T.Kernel(1, threads=THREADS):
            t = T.get_thread_binding()
            B[t] = T.warp_reduce_max(A[t])

    for target in ("cuda -arch=sm_80", "cuda -arch=sm_90a"):
        assert "tl::shfl_idx" in compiled(main, target, "device").get_kernel_source()
