"""Barriers are placed where they are needed, and the checker finds every one that is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mutants import all_needed, mutants, refuted
from tvm import ir
from tvm import tirx as tir

import tilelang.language as T
from tile_compiler.simt.errors import SharedMemoryRace
from tilelang.ir import tile_ir

n = T.dynamic("n")


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


@pytest.mark.parametrize("length", [0, 1, 5])
def test_a_loop_that_waits_for_what_came_before_it_waits_once(rng: Any, check: Any, length: int) -> None:
    @T.prim_func
    def weighted(A: T.Tensor((n, 64), "float32"), w: T.Tensor((64,), "float32"), B: T.Tensor((n, 64), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float32")
            T.copy(w, s)
            for k in T.serial(n):
                for i in T.Parallel(64):
                    B[k, i] = A[k, i] * s[63 - i]

    arrays = [rng.standard_normal(shape).astype("float32") for shape in ((length, 64), (64,))]
    trace, _ = check(weighted, [*arrays, np.zeros((length, 64), "float32")], passes=length == 5)
    kernel = trace.steps[-1].after
    assert all_needed(kernel) == 1
    loop = next(node for node in tile_ir.walk(kernel.body) if isinstance(node, tir.For))
    assert "sync_threads" not in str(loop)


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


def test_race_in_a_late_iteration_is_found(rng: Any, check: Any) -> None:
    """Iterations that repeat are not walked; the one that differs is."""

    @T.prim_func
    def late(A: T.Tensor((1000, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float32")
            tx = T.get_thread_binding()
            for k in T.serial(1000):
                s[tx] = A[k, tx]
                if k == 997:
                    B[tx] = s[63 - tx]

    args = [rng.standard_normal((1000, 64)).astype("float32"), np.zeros(64, "float32")]
    trace, ctx = check(late, args, passes=False)
    assert all_needed(trace.steps[-1].after) == 2
    assert not ctx.report.assumed


def test_race_of_one_block_is_found(rng: Any, check: Any) -> None:
    """Only blocks from the third on run the loop often enough."""

    @T.prim_func
    def triangle(A: T.Tensor((8, 64), "float32"), B: T.Tensor((8, 64), "float32")):
        with T.Kernel(8, threads=64) as bx:
            s = T.alloc_shared((3, 64), "float32")
            tx = T.get_thread_binding()
            for k in T.serial(bx):
                s[k % 3, tx] = A[k, tx]
                if k >= 2:
                    B[bx, tx] = s[(k + 1) % 3, 63 - tx]

    args = [rng.standard_normal((8, 64)).astype("float32"), np.zeros((8, 64), "float32")]
    trace, _ = check(triangle, args, passes=False)
    final = trace.steps[-1].after
    verdicts = [refuted(mutant) for mutant, _ in mutants(final)]
    assert not refuted(final)
    assert any(verdicts)
    assert refuted(without_barriers(final))


def test_condition_that_memory_decides_anew_each_time(rng: Any, proved: Any) -> None:
    """Written in one iteration, read by others in a later one: neither always nor never would show it."""

    @T.prim_func
    def flags(F: T.Tensor((6,), "int32"), A: T.Tensor((6, 64), "float32"), B: T.Tensor((6, 64), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float32")
            tx = T.get_thread_binding()
            s[tx] = 0
            for k in T.serial(6):
                if F[k] > 0:
                    s[tx] = A[k, tx]
                else:
                    B[k, tx] = s[63 - tx]

    flags_ = np.array([1, 0, 1, 0, 0, 1], "int32")
    args = [flags_, rng.standard_normal((6, 64)).astype("float32"), np.zeros((6, 64), "float32")]
    trace, _ = proved(flags, args, passes=False)
    assert all_needed(trace.steps[-1].after) == 2


def test_loop_left_by_a_break(rng: Any, proved: Any) -> None:
    @T.prim_func
    def search(F: T.Tensor((6,), "int32"), A: T.Tensor((6, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float32")
            tx = T.get_thread_binding()
            for k in T.serial(6):
                s[tx] = A[k, tx]
                if F[k] > 0:
                    break
                T.sync_threads()
            B[tx] = s[63 - tx]

    args = [
        np.array([0, 0, 1, 0, 0, 0], "int32"),
        rng.standard_normal((6, 64)).astype("float32"),
        np.zeros(64, "float32"),
    ]
    trace, _ = proved(search, args, passes=False)
    final = trace.steps[-1].after
    assert not refuted(final)
    last = without_last_barrier(final)
    assert refuted(last)


def without_barriers(func: Any) -> Any:
    while found := [mutant for mutant, change in mutants(func) if change.was == "tl::sync_threads"]:
        func = found[0]
    return func


def without_last_barrier(func: Any) -> Any:
    found = [mutant for mutant, change in mutants(func) if change.was == "tl::sync_threads"]
    return found[-1]


def test_conditions_that_read_shared_memory(rng: Any, proved: Any) -> None:
    """A condition is read again at the end of a `while`, and has been read when what is under it overwrites it."""

    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), N: T.Tensor((1,), "int32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            left = T.alloc_shared((2,), "int32")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            for i in T.Parallel(2):
                left[i] = N[0]
            while left[0] > 0:
                for i in T.Parallel(64):
                    total[i] = total[i] + A[i]
                if left[1] == 2:
                    for i in T.Parallel(1):
                        left[1] = 0
                for i in T.Parallel(1):
                    left[i] = left[i] - 1
            T.copy(total, B)

    args = [rng.standard_normal(64).astype("float32"), np.array([3], "int32"), np.zeros(64, "float32")]
    trace, _ = proved(main, args)
    assert all_needed(trace.steps[-1].after) == 4


def test_while_loop(rng: Any, proved: Any) -> None:
    @T.prim_func
    def steps(F: T.Tensor((8,), "int32"), A: T.Tensor((8, 64), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((64,), "float32")
            tx = T.get_thread_binding()
            k = T.alloc_var("int32")
            k = 0
            B[tx] = 0
            while F[k] > 0:
                s[tx] = A[k, tx]
                B[tx] = B[tx] + s[63 - tx]
                k = k + 1

    args = [np.array([1, 1, 1, 0, 0, 0, 0, 0], "int32"), rng.standard_normal((8, 64)).astype("float32")]
    trace, _ = proved(steps, [*args, np.zeros(64, "float32")], passes=False)
    assert all_needed(trace.steps[-1].after) == 2


def test_global_memory_that_a_block_reads_and_writes(rng: Any, proved: Any) -> None:
    @T.prim_func
    def mirror(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.Kernel(2, threads=64) as bx:
            tx = T.get_thread_binding()
            B[bx, tx] = A[bx, tx] * 2
            A[bx, tx] = B[bx, 63 - tx]

    args = [rng.standard_normal((2, 64)).astype("float32"), np.zeros((2, 64), "float32")]
    trace, _ = proved(mirror, args, passes=False)
    assert all_needed(trace.steps[-1].after) == 1


@pytest.mark.parametrize("what", ["columns", "turned", "a part", "added to"])
def test_what_a_block_writes_twice(rng: Any, proved: Any, what: str) -> None:
    """The threads that write an element last are others than those before: the last one wins behind a barrier."""

    @T.prim_func
    def twice(A: T.Tensor((64, 64), "float16"), B: T.Tensor((128, 64), "float32")):
        with T.Kernel(2, threads=128) as bx:
            f = T.alloc_fragment((64, 64), "float32")
            T.copy(A, f)
            if what == "columns":
                for i, j in T.Parallel(64, 3):
                    B[bx * 64 + i, j] = 1.0
            if what == "turned":
                for i, j in T.Parallel(64, 64):
                    B[bx * 64 + j, i] = 1.0
            if what == "a part":
                T.copy(f[:, 0:3], B[bx * 64, 0])
            T.copy(f, B[bx * 64, 0])
            if what == "added to":
                for i, j in T.Parallel(64, 64):
                    T.atomic_add(B[bx * 64 + j, i], 1.0)

    args = [rng.standard_normal((64, 64)).astype("float16"), np.zeros((128, 64), "float32")]
    trace, _ = proved(twice, args, passes=False)
    checked = trace.after("check_synchronization")  # where atomics are no calls yet
    placed = barriers(checked)  # two where elements change threads first
    assert all_needed(checked) == len(placed) > 0


def test_a_cleared_tensor_that_is_written_where_memory_says(rng: Any, proved: Any) -> None:
    """A barrier stands between the lines; the report says what nothing can prove."""

    @T.prim_func
    def scatter(Places: T.Tensor((64,), "int32"), B: T.Tensor((1024,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(1024):
                B[i] = 0.0
            for i in T.Parallel(64):
                B[Places[i]] = 1.0

    args = [rng.permutation(1024)[:64].astype("int32"), np.full(1024, 7, "float32")]
    trace, ctx = proved(scatter, args, passes=False)
    assert barriers(trace.after("check_synchronization")) == ["tl::sync_threads"]
    assert any("several lines write B where memory says" in text for text in ctx.report.assumed)


@pytest.mark.parametrize("apart", [True, False])
def test_parts_of_a_tensor_that_lie_beside_each_other(rng: Any, proved: Any, apart: bool) -> None:
    """Wherever the block's tile is; a tile that begins elsewhere by a number that nobody knows may be the same."""
    m, shift = T.dynamic("m"), T.dynamic("shift")

    @T.prim_func
    def halves(A: T.Tensor((64, 32), "float16"), B: T.Tensor((m, 32), "float32"), S: T.Tensor((shift,), "int8")):
        with T.Kernel(m // 128, threads=128) as bx:
            f, g = T.alloc_fragment((64, 32), "float32"), T.alloc_fragment((64, 32), "float32")
            T.copy(A, f)
            for i, j in T.Parallel(64, 32):
                g[i, j] = A[i, 31 - j]
            T.copy(f, B[bx * 128, 0])
            T.copy(g, B[bx * 128 + 64 if apart else bx * 64 + shift, 0])

    args = [rng.standard_normal((64, 32)).astype("float16"), np.zeros((128, 32), "float32"), np.zeros(32, "int8")]
    trace, _ = proved(halves, args, passes=False)
    assert bool(barriers(trace.steps[-1].after)) == (not apart)


def test_user_function_is_assumed_to_be_in_step(lower: Any) -> None:
    @T.prim_func
    def outside(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as bx:
            T.import_source("__device__ void turn(float* s) {}")
            s = T.alloc_shared((64,), "float32")
            T.copy(A, s)
            T.call_extern("handle", "turn", T.address_of(s[0]))
            T.copy(s, A)

    _, ctx = lower(outside)
    assert any("turn accesses s in step with the barriers around it" in text for text in ctx.report.assumed)


def barriers(func: Any) -> list[str]:
    found = [n for n in tile_ir.walk(func.body) if isinstance(n, ir.Call) and str(n.op.name) == "tirx.call_extern"]
    return [
        str(n.args[0].value) for n in found if "sync" in str(n.args[0].value) and "cp_async" not in str(n.args[0].value)
    ]


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_one_barrier_in_each_step_of_a_product(lower: Any, stages: int) -> None:
    trace, _ = lower(product(128, 128, 512, stages))
    assert barriers(trace.steps[-1].after) == ["tl::sync_threads"]


def test_no_barrier_where_each_thread_keeps_to_its_elements(rng: Any, proved: Any) -> None:
    @T.prim_func
    def scaled(A: T.Tensor((4, 1024), "float32"), B: T.Tensor((4, 1024), "float32")):
        with T.Kernel(4, threads=128) as bx:
            a = T.alloc_shared((1024,), "float32")
            b = T.alloc_shared((1024,), "float32")
            for k in T.serial(1):
                T.copy(A[bx, :], a)
                for i in T.Parallel(1024):
                    b[i] = a[i] * 2
                T.copy(b, B[bx, :])

    args = [rng.standard_normal((4, 1024)).astype("float32"), np.zeros((4, 1024), "float32")]
    trace, _ = proved(scaled, args, passes=False)
    assert not barriers(trace.steps[-1].after)


def test_shared_memory_over_the_limit_names_each_buffer(lower: Any) -> None:
    from tile_compiler.simt.errors import SharedMemoryOverflow

    with pytest.raises(SharedMemoryOverflow, match="a 65536, b 65536"):
        lower(product(128, 128, 256, 4, (128, 128, 64)), arch="sm_75")
