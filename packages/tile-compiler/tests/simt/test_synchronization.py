"""Barriers are placed where they are needed, and the checker finds every one that is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tvm import ir
from tvm import tirx as tir

import tilelang.language as T
from tile_compiler.rewrite import Rewriter, map_kernels
from tile_compiler.simt.check_synchronization import check_synchronization
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.errors import SharedMemoryRace
from tilelang.ir import tile_ir

n = T.dynamic("n")


class _Drop(Rewriter):
    """Removes the `which`-th barrier or wait."""

    def __init__(self, which: int) -> None:
        self.left, self.dropped = which, ""

    def evaluate(self, node: tir.Evaluate) -> Any:
        call = node.value
        if isinstance(call, ir.Call) and str(call.op.name) == "tirx.call_extern":
            name = str(call.args[0].value)
            if name == "tl::sync_threads" or name.startswith("tl::cp_async_wait"):
                self.left -= 1
                if self.left == -1:
                    self.dropped = name
                    return None
        return node


def without(func: Any, which: int) -> tuple[Any, str]:
    drop = _Drop(which)

    def rule(kernel: Any) -> Any:
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, drop.body(kernel.body), kernel.span)

    return map_kernels(func, rule), drop.dropped


def all_needed(func: Any) -> int:
    """Every barrier and wait is needed; how many there are."""
    number = 0
    while True:
        mutant, dropped = without(func, number)
        if not dropped:
            return number
        with pytest.raises(SharedMemoryRace):
            check_synchronization(mutant, SimtContext())
        number += 1


def product(M: int, N: int, K: int, stages: int, size: tuple[int, int, int] = (64, 64, 32), threads: int = 128) -> Any:
    block_m, block_n, block_k = size

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, block_n), T.ceildiv(M, block_m), threads=threads) as (bx, by):
            a = T.alloc_shared((block_m, block_k), "float16")
            b = T.alloc_shared((block_k, block_n), "float16")
            c = T.alloc_fragment((block_m, block_n), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, block_k), num_stages=stages):
                T.copy(A[by * block_m, k * block_k], a)
                T.copy(B[k * block_k, bx * block_n], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * block_m, bx * block_n])

    return main


@pytest.mark.parametrize("stages", [0, 1, 2, 3, 4])
def test_every_barrier_of_a_product_is_needed(lower: Any, stages: int) -> None:
    trace, _ = lower(product(128, 128, 256, stages))
    assert all_needed(trace.steps[-1].after) == {0: 2, 1: 3}.get(stages, 2)


@pytest.mark.parametrize("stages", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("K", [32, 64, 200])
def test_stages_change_no_result(rng: Any, check: Any, stages: int, K: int) -> None:
    args = [rng.standard_normal(s).astype("float16") for s in ((64, K), (K, 64))]
    check(product(64, 64, K, stages), [*args, np.zeros((64, 64), "float32")], rtol=1e-3, atol=1e-3, passes=False)


@pytest.mark.parametrize("length", [0, 1, 33, 150])
def test_dynamic_trip_count(rng: Any, check: Any, length: int) -> None:
    kernel = product(32, 32, n, 3, (32, 32, 32), 32)
    args = [rng.standard_normal(s).astype("float16") for s in ((32, length), (length, 32))]
    check(kernel, [*args, np.zeros((32, 32), "float32")], rtol=1e-3, atol=1e-3, passes=length == 150)


def test_loop_that_reads_and_then_overwrites_a_tile(rng: Any, check: Any) -> None:
    @T.prim_func
    def rolling(A: T.Tensor((5, 64), "float32"), B: T.Tensor((5, 64), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float32")
            T.fill(s, 0)
            for k in T.serial(5):
                for i in T.Parallel(64):
                    B[k, i] = s[63 - i]
                T.copy(A[k, :], s)

    trace, _ = check(rolling, [rng.standard_normal((5, 64)).astype("float32"), np.zeros((5, 64), "float32")])
    assert all_needed(trace.steps[-1].after) == 2


@pytest.mark.parametrize("threads", [48, 96])
def test_thread_counts_that_are_no_multiple_of_32(rng: Any, check: Any, threads: int) -> None:
    @T.prim_func
    def flip(A: T.Tensor((96,), "float32"), B: T.Tensor((96,), "float32")):
        with T.Kernel(1, threads=threads) as bx:
            s = T.alloc_shared((96,), "float32")
            T.copy(A, s)
            for i in T.Parallel(96):
                B[i] = s[95 - i]

    trace, _ = check(flip, [rng.standard_normal(96).astype("float32"), np.zeros(96, "float32")])
    assert all_needed(trace.steps[-1].after) == 1


def test_read_of_another_thread_under_a_divergent_condition(rng: Any, check: Any) -> None:
    @T.prim_func
    def first_half(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float32")
            tx = T.get_thread_binding()
            s[tx] = A[tx]
            if tx < 32:
                B[tx] = s[63 - tx]

    trace, _ = check(first_half, [rng.standard_normal(64).astype("float32"), np.zeros(64, "float32")])
    assert all_needed(trace.steps[-1].after) == 1


def test_exchange_inside_a_divergent_condition_is_an_error(lower: Any) -> None:
    @T.prim_func
    def inside(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float32")
            tx = T.get_thread_binding()
            if tx < 32:
                s[tx] = A[tx]
                B[tx] = s[31 - tx]

    with pytest.raises(SharedMemoryRace) as caught:
        lower(inside)
    text = str(caught.value)
    assert text.count("test_synchronization.py:") >= 2


def test_own_element_needs_no_barrier_inside_a_condition(rng: Any, check: Any) -> None:
    @T.prim_func
    def own(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float32")
            tx = T.get_thread_binding()
            if tx < 32:
                s[tx] = A[tx]
                B[tx] = s[tx]

    check(own, [rng.standard_normal(64).astype("float32"), np.zeros(64, "float32")])


def test_explicit_order_and_stage(rng: Any, check: Any) -> None:
    @T.prim_func
    def main(A: T.Tensor((64, 128), "float16"), B: T.Tensor((128, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(4, order=[0, 1, 2], stage=[0, 0, 1]):
                T.copy(A[0, k * 32], a)
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    args = [rng.standard_normal(s).astype("float16") for s in ((64, 128), (128, 64))]
    trace, ctx = check(main, [*args, np.zeros((64, 64), "float32")], rtol=1e-3, atol=1e-3)
    assert any("2 version(s) of a, b" in text for _, text in ctx.report.notes)
    assert all_needed(trace.steps[-1].after) == 2


def test_shared_memory_over_the_limit_names_each_buffer(lower: Any) -> None:
    from tile_compiler.simt.errors import SharedMemoryOverflow

    with pytest.raises(SharedMemoryOverflow, match="a 65536, b 65536"):
        lower(product(128, 128, 256, 4, (128, 128, 64)), arch="sm_75")
