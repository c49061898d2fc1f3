"""`T.ws`: warpgroups with work of their own, in the emulator, where a missing barrier or wait is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang import interpreter
from tilelang.errors import InvalidArgument
from tilelang.interpreter.errors import InterpreterError

HOPPER = "cuda -arch=sm_90a"


def ring(m: int, n: int, k: int, stages: int) -> Any:
    """C = A @ B: the third warpgroup brings tiles, the first two share a tile of C."""
    bm, bn, bk = 128, 64, 32

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), "float16")):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=384) as (bx, by):
            a = T.alloc_shared((stages, bm, bk), "float16")
            b = T.alloc_shared((stages, bk, bn), "float16")
            c = T.alloc_fragment((bm, bn), "float32")
            full = T.alloc_barrier([128] * stages)
            empty = T.alloc_barrier([256] * stages)
            with T.ws(2):
                T.dec_max_nreg(24)
                for i in T.serial(T.ceildiv(k, bk)):
                    T.mbarrier_wait_parity(empty[i % stages], (i // stages) % 2 ^ 1)
                    T.tma_copy(A[by * bm, i * bk], a[i % stages, :, :], barrier=full[i % stages])
                    T.tma_copy(B[i * bk, bx * bn], b[i % stages, :, :], barrier=full[i % stages])
                    T.mbarrier_arrive(full[i % stages])
            with T.ws(0, 1):
                T.inc_max_nreg(240)
                T.clear(c)
                for i in T.serial(T.ceildiv(k, bk)):
                    T.mbarrier_wait_parity(full[i % stages], (i // stages) % 2)
                    T.gemm(a[i % stages, :, :], b[i % stages, :, :], c)
                    T.mbarrier_arrive(empty[i % stages])
                T.copy(c, C[by * bm, bx * bn])

    return main


@pytest.mark.parametrize(("k", "stages"), [(160, 3), (40, 2), (32, 2)])
def test_a_producer_and_two_consumers(agree, values, k, stages):
    a, b = values((128, k), "float16", 1), values((k, 72), "float16", 2)
    want = (a.astype("float32") @ b.astype("float32")).astype("float16")
    text = agree(ring(128, 72, k, stages), [a, b], want).source
    assert "tl::register_limit_decrease<24>" in text
    assert "tl::register_limit_increase<240>" in text
    assert text.index("tl::wgmma_wait<0>") < text.index("tl::mbarrier_arrive(&empty")


@pytest.mark.parametrize("arrives", [(0, 1), (1,), ()])
def test_the_interpreter_finds_who_waits_for_ever(arrives):
    """Two groups that wait for each other, one that waits for a group that has ended, and both."""

    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=256):
            bars = T.alloc_barrier([128, 128])
            with T.ws(0):
                if 0 in arrives:
                    T.mbarrier_arrive(bars[0])
                T.mbarrier_wait_parity(bars[1], 0)
            with T.ws(1):
                T.mbarrier_wait_parity(bars[0], 0)
                if 1 in arrives:
                    T.mbarrier_arrive(bars[1])

    if len(arrives) == 2:
        interpreter.run(main, [np.zeros(4, "float32")])
        return
    with pytest.raises(InterpreterError, match="a wait for bars that never ends") as caught:
        interpreter.run(main, [np.zeros(4, "float32")])
    assert "0 of 128 arrivals" in str(caught.value)


def test_the_text_compiles_for_the_device():
    """ptxas says nothing, so it takes the limits on registers: C7508 would be that it ignores them, and an error here."""
    pytest.importorskip("tile_runtime_cuda")
    (resources,) = tilelang.compile(ring(256, 128, 256, 3), target=HOPPER).artifact.manifest.resources.values()
    assert resources["spills"] == 0
    assert resources["stack"] == 0


def test_roles_inside_of_a_loop(agree, values):
    """Producer and consumer take turns in one loop, as the interpreter runs them too."""
    rows, width, steps = 32, 64, 5

    @T.prim_func
    def main(A: T.Tensor((steps * rows, width), "float32"), B: T.Tensor((rows, width), "float32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((2, rows, width), "float32")
            total = T.alloc_fragment((rows, width), "float32")
            full = T.alloc_barrier([128, 128])
            empty = T.alloc_barrier([128, 128])
            with T.ws(0):
                T.clear(total)
            for i in T.serial(steps):
                with T.ws(1):
                    T.mbarrier_wait_parity(empty[i % 2], (i // 2) % 2 ^ 1)
                    T.copy(A[i * rows, 0], s[i % 2, :, :])
                    T.mbarrier_arrive(full[i % 2])
                with T.ws(0):
                    T.mbarrier_wait_parity(full[i % 2], (i // 2) % 2)
                    for r, c in T.Parallel(rows, width):
                        total[r, c] += s[i % 2, r, c]
                    T.mbarrier_arrive(empty[i % 2])
            with T.ws(0):
                T.copy(total, B)

    a = values((steps * rows, width), "float32")
    agree(main, [a], a.reshape(steps, rows, width).sum(axis=0))


def test_a_group_has_a_barrier_of_its_own_and_the_block_the_others(agree, values):
    n = 64

    @T.prim_func
    def main(A: T.Tensor((n, n), "float32"), B: T.Tensor((n, n), "float32"), C: T.Tensor((n, n), "float32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((n, n), "float32")
            t = T.alloc_shared((n, n), "float32")
            u = T.alloc_shared((n, n), "float32")
            T.copy(A, s)
            with T.ws(0):
                for i, j in T.Parallel(n, n):
                    t[i, j] = s[j, i] + 1
                for i, j in T.Parallel(n, n):
                    B[i, j] = t[j, i] + t[i, j]
            with T.ws(1):
                for i, j in T.Parallel(n, n):
                    u[i, j] = s[n - 1 - i, j]
            for i, j in T.Parallel(n, n):
                C[i, j] = u[j, i] + t[i, j]

    a = values((n, n), "float32")
    kernel = tilelang.compile(main, target=HOPPER, execution="emulate")
    b, c = np.zeros_like(a), np.zeros_like(a)
    kernel(a, b, c)
    np.testing.assert_array_equal(b, a + a.T + 2)
    np.testing.assert_array_equal(c, a[::-1].T + a.T + 1)
    text = kernel.artifact.source
    assert text.count("tl::sync_threads<15, 128>()") == 1
    assert text.count("tl::sync_threads()") == 2


@pytest.mark.parametrize("groups", [(2,), (0, 2), (), (-1,)])
def test_warpgroups_that_are_not_there(groups):
    with pytest.raises(InvalidArgument, match="T.ws names no warpgroups of the block"):

        @T.prim_func
        def main(A: T.Tensor((4,), "float32")):
            with T.Kernel(1, threads=256):
                with T.ws(*groups):
                    T.fill(A, 0)


def test_impossible_register_limits():
    with pytest.raises(InvalidArgument, match="impossible number of registers"):

        @T.prim_func
        def main(A: T.Tensor((4,), "float32")):
            with T.Kernel(1, threads=128):
                T.set_max_nreg(25, 1)


@pytest.mark.parametrize("fixed", [False, True])
def test_the_user_keeps_the_compiler_from_moving_registers(fixed):
    m, bm, bn, bk = 256, 128, 256, 64

    @T.prim_func
    def main(A: T.Tensor((m, m), "float16"), B: T.Tensor((m, m), "float16"), C: T.Tensor((m, m), "float16")):
        with T.Kernel(m // bn, m // bm, threads=256) as (bx, by):
            if fixed:
                T.no_set_max_nreg()
            a = T.alloc_shared((bm, bk), "float16")
            b = T.alloc_shared((bk, bn), "float16")
            c = T.alloc_fragment((bm, bn), "float32")
            T.clear(c)
            for k in T.Pipelined(m // bk, num_stages=3):
                T.copy(A[by * bm, k * bk], a)
                T.copy(B[k * bk, bx * bn], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * bm, bx * bn])

    text = tilelang.compile(main, target=HOPPER, execution="emulate").artifact.source
    assert ("tl::register_limit" in text) != fixed
