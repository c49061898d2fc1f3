"""Reductions and scans: shuffles, several warps, irregular rows, old content."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import threads as simt

import tilelang.language as T
from tile_compiler.rewrite import is_call
from tile_compiler.simt.distribution import Distribution, linear, pushed_forward
from tilelang.ir import tile_ir
from tilelang.layout import Fragment


@pytest.mark.parametrize("threads", [32, 48, 128])
@pytest.mark.parametrize("shape", [(32, 64), (4, 512), (13, 45), (3, 7)])
@pytest.mark.parametrize("dim", [0, 1])
def test_sum_and_max(rng: Any, check: Any, threads: int, shape: tuple[int, int], dim: int) -> None:
    size = shape[1 - dim]

    @T.prim_func
    def reduce(A: T.Tensor(shape, "float32"), S: T.Tensor((size,), "float32"), M: T.Tensor((size,), "float32")):
        with T.Kernel(1, threads=threads) as bx:
            f = T.alloc_fragment(shape, "float32")
            s = T.alloc_fragment((size,), "float32")
            largest = T.alloc_fragment((size,), "float32")
            T.copy(A, f)
            T.fill(largest, 0.5)
            T.reduce_sum(f, s, dim=dim)
            T.reduce_max(f, largest, dim=dim, clear=False)
            T.copy(s, S)
            T.copy(largest, M)

    args = [rng.standard_normal(shape).astype("float32"), np.zeros(size, "float32"), np.zeros(size, "float32")]
    check(reduce, args, passes=False)


def test_old_content_enters_once(rng: Any, check: Any) -> None:
    @T.prim_func
    def reduce(A: T.Tensor((16, 128), "float32"), S: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            f = T.alloc_fragment((16, 128), "float32")
            s = T.alloc_fragment((16,), "float32")
            T.copy(A, f)
            T.fill(s, 100.0)
            for k in T.serial(3):
                T.reduce_sum(f, s, dim=1, clear=False)
            T.copy(s, S)

    check(reduce, [rng.standard_normal((16, 128)).astype("float32"), np.zeros(16, "float32")])


def test_rows_of_one_warp_use_shuffles(lower: Any) -> None:
    @T.prim_func
    def reduce(A: T.Tensor((64, 64), "float16"), S: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            f = T.alloc_fragment((64, 64), "float16")
            s = T.alloc_fragment((64,), "float32")
            T.copy(A, f)
            T.reduce_sum(f, s, dim=1)
            T.copy(s, S)

    trace, ctx = lower(reduce)
    assert len(simt.calls(trace.steps[-1].after, "tl::shfl_xor")) == 3
    assert ctx.shared_bytes == {0: 0}


@pytest.mark.parametrize("cols", [64, 100])
def test_softmax(rng: Any, check: Any, cols: int) -> None:
    @T.prim_func
    def softmax(A: T.Tensor((8, cols), "float32"), B: T.Tensor((8, cols), "float32")):
        with T.Kernel(2, threads=128) as bx:
            x = T.alloc_fragment((4, cols), "float32")
            top = T.alloc_fragment((4,), "float32")
            total = T.alloc_fragment((4,), "float32")
            T.copy(A[bx * 4, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(4, cols):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(4, cols):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, B[bx * 4, 0])

    args = [rng.standard_normal((8, cols)).astype("float32"), np.zeros((8, cols), "float32")]
    check(softmax, args, passes=cols == 64)


def test_rows_follow_the_tile_and_not_their_statistics(rng: Any, check: Any) -> None:
    """16 running maxima would give each row to one thread: the tile that they describe lies over all threads instead."""

    @T.prim_func
    def shifted(A: T.Tensor((16, 256), "float32"), B: T.Tensor((16, 256), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((16, 128), "float32")
            x = T.alloc_fragment((16, 128), "float32")
            top = T.alloc_fragment((16,), "float32")
            T.fill(top, -9)
            for k in T.serial(2):
                T.copy(A[0, k * 128], a)
                T.reduce_max(a, top, dim=1, clear=False)
                for i, j in T.Parallel(16, 128):
                    x[i, j] = a[i, j] - top[i]
                T.copy(x, B[0, k * 128])

    trace, ctx = check(shifted, [rng.standard_normal((16, 256)).astype("float32"), np.zeros((16, 256), "float32")])
    found = [n for n in tile_ir.walk(trace.steps[-1].after.body) if is_call(n, "tirx.call_extern")]
    called = [str(n.args[0].value) for n in found]
    assert "tl::shfl_xor" in called
    assert "tl::sync_threads" not in called
    (layouts,) = ctx.layouts.values()
    fragments = {u.name: v for u, v in layouts.solution.values.items() if u.name in ("x", "top")}
    assert fragments["x"].describe() == (
        "(i, j) -> thread (i * 32 + j // 4) % 128, register (i * 128 + j) // 512 * 4 + j % 4"
    )
    assert "held 32 times" in fragments["top"].describe()


@pytest.mark.parametrize(
    ("rows", "cols", "threads", "first"),
    [
        (16, 128, 128, (64, 1, 128)),  # a row in 64 threads: tx % 64 == 0
        (64, 8, 128, (4, 1, 128)),
        (8, 8, 64, (4, 1, 32)),  # and half of the block holds nothing
        (6, 6, 96, (3, 1, 18)),
    ],
)
def test_which_of_the_threads_with_a_row_store_it(
    rng: Any, check: Any, rows: int, cols: int, threads: int, first: tuple[int, int, int]
) -> None:
    held = linear((rows, cols), threads, 2)
    of_rows = pushed_forward(held, np.repeat(np.arange(rows), cols).reshape(rows, cols), (rows,))
    assert of_rows.first_of == first
    period, count, end = first
    stores = [t for t in range(threads) if t % period < count and t < end]
    assert stores == sorted(set(of_rows.thread_of[0].ravel()))

    @T.prim_func
    def sums(A: T.Tensor((rows, cols), "float32"), S: T.Tensor((rows,), "float32")):
        with T.Kernel(1, threads=threads):
            a = T.alloc_fragment((rows, cols), "float32")
            s = T.alloc_fragment((rows,), "float32")
            T.copy(A, a)
            T.reduce_sum(a, s, dim=1)
            T.copy(s, S)

    check(sums, [rng.standard_normal((rows, cols)).astype("float32"), np.zeros(rows, "float32")], passes=False)


def test_copies_that_are_not_apart_have_no_first_threads() -> None:
    """Thread 1 holds the first copy of one element and the second one of another."""
    overlapping = Distribution(Fragment((2,), lambda i, rep: (i + rep, 0), replicate=2), 4)
    assert overlapping.first_of is None


def test_shared_operands_are_staged(rng: Any, check: Any) -> None:
    @T.prim_func
    def reduce(A: T.Tensor((16, 64), "float32"), S: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            a = T.alloc_shared((16, 64), "float32")
            s = T.alloc_shared((16,), "float32")
            T.copy(A, a)
            T.fill(s, 1)
            T.reduce_sum(a, s, dim=1, clear=False)
            T.copy(s, S)

    check(reduce, [rng.standard_normal((16, 64)).astype("float32"), np.zeros(16, "float32")])


def test_lanes_that_hold_one_result_exchange_it_once(rng: Any, check: Any) -> None:
    """Each of four warps has parts of two rows: one number for each of those crosses shared memory."""

    @T.prim_func
    def reduce(A: T.Tensor((4, 256), "float32"), S: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            f = T.alloc_fragment((4, 256), "float32")
            s = T.alloc_fragment((4,), "float32")
            T.copy(A, f)
            T.reduce_sum(f, s, dim=1)
            T.copy(s, S)

    args = [rng.standard_normal((4, 256)).astype("float32"), np.zeros(4, "float32")]
    _, ctx = check(reduce, args, passes=False)
    assert ctx.shared_bytes == {0: 4 * 2 * 4}


@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize(("rows", "cols", "threads"), [(16, 128, 128), (8, 32, 64), (64, 32, 128)])
def test_results_that_other_threads_need_are_handed_on(
    rng: Any, proved: Any, rows: int, cols: int, threads: int, clear: bool
) -> None:
    """All threads need all sums: the sums cross shared memory, and the tile does not."""
    everywhere = Fragment((rows,), lambda i, rep: (rep, i), replicate=threads)

    @T.prim_func
    def sums(A: T.Tensor((rows, cols), "float32"), S: T.Tensor((rows,), "float32")):
        with T.Kernel(1, threads=threads):
            a = T.alloc_fragment((rows, cols), "float32")
            s = T.alloc_fragment((rows,), "float32")
            T.annotate_layout({s: everywhere})
            T.copy(A, a)
            T.fill(s, 2)
            T.reduce_sum(a, s, dim=1, clear=clear)
            T.copy(s, S)

    args = [rng.standard_normal((rows, cols)).astype("float32"), np.zeros(rows, "float32")]
    trace, ctx = proved(sums, args)
    assert any("s goes through shared memory to the threads that need it" in text for _, text in ctx.report.notes)
    assert ctx.shared_bytes[0] < rows * cols * 4 / 4
    assert simt.calls(trace.steps[-1].after, "tl::shfl_xor")


@pytest.mark.parametrize("dim", [0, 1])
def test_a_pipelined_tile_is_reduced_along_the_dimension_that_is_said(rng: Any, check: Any, dim: int) -> None:
    """The pipeline gives the tile a dimension in front, of its versions."""

    @T.prim_func
    def sums(A: T.Tensor((3, 8, 16), "float32"), S: T.Tensor((8, 16)[1 - dim], "float32"),
             C: T.Tensor((3, 8, 16), "float32")):  # fmt: skip
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((8, 16), "float32")
            sums = T.alloc_shared((8, 16), "float32")
            total = T.alloc_fragment((8, 16)[1 - dim], "float32")
            T.clear(total)
            for k in T.Pipelined(3, num_stages=2):
                T.copy(A[k, 0, 0], tile)
                T.reduce_sum(tile, total, dim=dim, clear=False)
                T.cumsum(tile, sums, dim=dim)
                T.copy(sums, C[k, 0, 0])
            T.copy(total, S)

    a = rng.standard_normal((3, 8, 16)).astype("float32")
    check(sums, [a, np.zeros((8, 16)[1 - dim], "float32"), np.zeros_like(a)], passes=False)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_cumsum(rng: Any, check: Any, dim: int, reverse: bool) -> None:
    @T.prim_func
    def scan(A: T.Tensor((16, 40), "float32"), B: T.Tensor((16, 40), "float32")):
        with T.Kernel(1, threads=64) as bx:
            f = T.alloc_fragment((16, 40), "float32")
            T.copy(A, f)
            T.cumsum(f, dim=dim, reverse=reverse)
            T.copy(f, B)

    check(scan, [rng.standard_normal((16, 40)).astype("float32"), np.zeros((16, 40), "float32")])


def test_atomics(rng: Any, check: Any) -> None:
    @T.prim_func
    def count(A: T.Tensor((64, 32), "float32"), S: T.Tensor((32,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            f = T.alloc_fragment((16, 32), "float32")
            s = T.alloc_fragment((32,), "float32")
            T.copy(A[bx * 16, 0], f)
            T.reduce_sum(f, s, dim=0)
            T.atomic_add(S, s)

    check(count, [rng.standard_normal((64, 32)).astype("float32"), np.zeros(32, "float32")])
