"""Barriers between blocks in the interpreter: blocks take turns, and a barrier that one of them misses is an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tilelang.errors import BarrierDivergence, InvalidArgument
from tilelang.interpreter import InterpreterError

BLOCKS, THREADS = 4, 32


def passed_on(across: Any, blocks: int = BLOCKS, dims: int = 2) -> Any:
    """Each block writes a row; behind `across`, which does the rest, it reads that of its neighbour in the cluster."""

    @T.prim_func
    def main(A: T.Tensor((blocks, THREADS), "float32"), S: T.Tensor((blocks, THREADS), "float32"),
             B: T.Tensor((blocks, THREADS), "float32")):  # fmt: skip
        with T.ClusterKernel(blocks, cluster_dims=dims, threads=THREADS) as bx:
            tx = T.get_thread_binding()
            S[bx, tx] = A[bx, tx] * 2
            across(bx)
            B[bx, tx] = S[bx ^ 1, THREADS - 1 - tx] + T.get_cluster_id()

    return main


def halves(bx: Any) -> None:
    T.cluster_arrive()
    T.cluster_wait()


def relaxed(bx: Any) -> None:
    T.cluster_arrive_relaxed()
    T.cluster_wait()


def run(func: Any, blocks: int = BLOCKS) -> None:
    a = np.random.default_rng(0).standard_normal((blocks, THREADS)).astype(np.float32)
    s, b = np.zeros_like(a), np.zeros_like(a)
    tilelang.compile(func, target="cuda -arch=sm_90a", execution="interpret")(a, s, b)
    want = np.stack([2 * a[n ^ 1, ::-1] + n // 2 for n in range(blocks)])
    np.testing.assert_array_equal(b, want.astype(np.float32))


@pytest.mark.parametrize("across", [lambda bx: T.cluster_sync(), halves, relaxed, lambda bx: T.sync_grid()])
def test_what_others_wrote_is_there_behind_a_barrier(across):
    run(passed_on(across))


def test_without_a_barrier_it_is_not():
    with pytest.raises(AssertionError):
        run(passed_on(lambda bx: None))


@T.macro
def all_but_one(bx: Any) -> None:
    if bx != 3:
        T.cluster_sync()


@T.macro
def once_for_each(bx: Any) -> None:
    for _ in T.serial(bx + 1):
        T.sync_grid()


@pytest.mark.parametrize(("across", "what"), [(all_but_one, "cluster"), (once_for_each, "grid")])
def test_a_barrier_that_a_block_misses(across, what):
    with pytest.raises(InterpreterError, match=rf"(?s)barrier of the {what} that not all its blocks reach.*1 of"):
        run(passed_on(across))


def arrivals(me: Any, count: int = THREADS) -> Any:
    """A block tells `me` of its own rank that its row is written."""

    @T.prim_func
    def main(A: T.Tensor((BLOCKS, THREADS), "float32"), S: T.Tensor((BLOCKS, THREADS), "float32"),
             B: T.Tensor((BLOCKS, THREADS), "float32")):  # fmt: skip
        with T.ClusterKernel(BLOCKS, cluster_dims=2, threads=THREADS) as bx:
            tx = T.get_thread_binding()
            ready = T.alloc_cluster_barrier(count)
            S[bx, tx] = A[bx, tx] * 2
            T.mbarrier_arrive(ready, cta_id=me(T.block_rank_in_cluster()))
            T.mbarrier_wait_parity(ready, 0)
            B[bx, tx] = S[bx ^ 1, THREADS - 1 - tx] + T.get_cluster_id()

    return main


def test_arrivals_at_the_barrier_of_another_block():
    run(arrivals(lambda rank: rank ^ 1))


def test_arrivals_that_never_come():
    with pytest.raises(InterpreterError, match="never ends"):
        run(arrivals(lambda rank: rank ^ 1, 2 * THREADS))
    with pytest.raises(InterpreterError, match="block 2 of a cluster, which has 2"):
        run(arrivals(lambda rank: rank * 2))


def test_warpgroups_wait_for_warpgroups_of_other_blocks():
    """The second warpgroup of a block waits for the first one of its neighbour, which waits for nobody."""

    @T.prim_func
    def main(A: T.Tensor((2, 128), "float32"), S: T.Tensor((2, 128), "float32"), B: T.Tensor((2, 128), "float32")):
        with T.ClusterKernel(2, cluster_dims=2, threads=256) as bx:
            ready = T.alloc_cluster_barrier(128)
            with T.ws(1):
                T.mbarrier_wait_parity(ready, 0)
                for i in T.Parallel(128):
                    B[bx, i] = S[bx ^ 1, i] + 1
            with T.ws(0):
                for i in T.Parallel(128):
                    S[bx, i] = A[bx, i] * 2
                T.mbarrier_arrive(ready, cta_id=bx ^ 1)

    a = np.arange(256, dtype=np.float32).reshape(2, 128)
    s, b = np.zeros_like(a), np.zeros_like(a)
    tilelang.compile(main, target="cuda -arch=sm_90a", execution="interpret")(a, s, b)
    np.testing.assert_array_equal(b, 2 * a[::-1] + 1)


def test_a_cluster_of_one_block_is_the_block():
    """What a cluster does is what the block does, so that the number of blocks may be a parameter."""

    @T.prim_func
    def main(A: T.Tensor((4, 32), "float32"), B: T.Tensor((4, 32), "float32")):
        with T.ClusterKernel(4, cluster_dims=1, threads=32) as bx:
            tx = T.get_thread_binding()
            ready = T.alloc_cluster_barrier(32)
            B[bx, tx] = A[bx, tx]
            T.mbarrier_arrive(ready, cta_id=0)
            T.mbarrier_wait_parity(ready, 0)
            T.cluster_sync()
            B[bx, tx] = B[bx, 31 - tx] + T.get_cluster_id()

    a = np.arange(128, dtype=np.float32).reshape(4, 32)
    b = np.zeros_like(a)
    tilelang.compile(main, target="cuda -arch=sm_90a", execution="interpret")(a, b)
    np.testing.assert_array_equal(b, a[:, ::-1] + np.arange(4, dtype=np.float32)[:, None])


@pytest.mark.parametrize(
    "use",
    [
        T.cluster_sync,
        T.cluster_arrive,
        T.cluster_wait,
        T.get_cluster_id,
        lambda: T.alloc_cluster_barrier(1),
        lambda: T.mbarrier_arrive(T.alloc_barrier(1), cta_id=0),
    ],
)
def test_a_kernel_without_clusters(use):
    with pytest.raises(InvalidArgument, match=r"(?s)without clusters.*cluster_dims=2"):

        @T.prim_func
        def main(A: T.Tensor((4,), "float32")):
            with T.Kernel(4, threads=32):
                use()


def test_a_block_that_the_cluster_does_not_have():
    with pytest.raises(InvalidArgument, match="cta_id=2 in clusters of 2"):
        arrivals(lambda rank: 2)


@pytest.mark.parametrize("across", [T.cluster_sync, T.sync_grid])
def test_a_barrier_in_the_work_of_one_warpgroup(across):
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.ClusterKernel(4, cluster_dims=2, threads=256):
            with T.ws(0):
                across()

    with pytest.raises(BarrierDivergence, match=r"stands inside T\.ws"):
        tilelang.compile(main, target="cuda -arch=sm_90a", execution="interpret")


def test_a_barrier_in_a_parallel_loop():
    with pytest.raises(InvalidArgument, match=r"inside T\.Parallel"):

        @T.prim_func
        def main(A: T.Tensor((4,), "float32")):
            with T.ClusterKernel(4, cluster_dims=2, threads=32):
                for _ in T.Parallel(4):
                    T.cluster_sync()
