"""What tile IR may not contain: found before anything runs, with the user's line; and what is allowed."""

import numpy as np
import pytest

import tilelang.language as T
from tilelang.errors import BarrierDivergence, ParallelConflict
from tilelang.interpreter import run
from tilelang.ir.verify import verify

F = T.Tensor((64,), "float32")


def kernel_of(body, threads=64):
    """A kernel over A (64), B (64, 64) and S (1) with this body."""

    @T.prim_func
    def kernel(
        A: T.Tensor((64,), "float32"), B: T.Tensor((64, 64), "float32"), S: T.Tensor((1,), "float32"), n: T.int32
    ):
        with T.Kernel(2, threads=threads) as bx:
            body(A, B, S, n, bx)

    return kernel


@T.macro
def index_leaves_out_a_variable(A, B, S, n, bx):
    for i, j in T.Parallel(64, 64):
        A[i] = B[i, j]


@T.macro
def value_is_the_variable(A, B, S, n, bx):
    for i in T.Parallel(64):
        S[0] = i


@T.macro
def value_through_a_bound_name(A, B, S, n, bx):
    for i in T.Parallel(64):
        x = A[i] * 2
        S[0] = x


@T.macro
def sum_in_place(A, B, S, n, bx):
    for i in T.Parallel(64):
        S[0] += A[i]


@T.macro
def count_in_place(A, B, S, n, bx):
    for i in T.Parallel(64):
        S[0] = S[0] + 1


@T.macro
def in_shared_memory(A, B, S, n, bx):
    tile = T.alloc_shared((8,), "float32")
    for i, j in T.Parallel(8, 8):
        tile[i] = j


@T.macro
def in_a_fragment(A, B, S, n, bx):
    tile = T.alloc_fragment((8,), "float32")
    for i, j in T.Parallel(8, 8):
        tile[j] = B[i, j]


@T.macro
def in_a_serial_loop_of_the_body(A, B, S, n, bx):
    for i in T.Parallel(64):
        for k in T.serial(4):
            A[k] = B[i, k]


@T.macro
def under_a_condition_of_the_block(A, B, S, n, bx):
    for i in T.Parallel(64):
        if n > 3:
            S[0] = A[i]


CONFLICTS = [
    index_leaves_out_a_variable,
    value_is_the_variable,
    value_through_a_bound_name,
    sum_in_place,
    count_in_place,
    in_shared_memory,
    in_a_fragment,
    in_a_serial_loop_of_the_body,
    under_a_condition_of_the_block,
]


@pytest.mark.parametrize("body", CONFLICTS, ids=lambda b: b.__name__)
def test_definite_conflict_is_an_error(body):
    with pytest.raises(ParallelConflict, match="write the same element|update the same element") as caught:
        verify(kernel_of(body))
    assert caught.value.location.file == __file__
    assert "=" in caught.value.location.text


@T.macro
def same_value_everywhere(A, B, S, n, bx):
    for i in T.Parallel(64):
        S[0] = bx + n


@T.macro
def one_iteration_only(A, B, S, n, bx):
    for i in T.Parallel(64):
        if i == n:
            S[0] = A[i]


@T.macro
def extent_of_one(A, B, S, n, bx):
    for i, j in T.Parallel(64, 1):
        A[i] = B[i, j]


@T.macro
def undecidable_index(A, B, S, n, bx):
    for i in T.Parallel(64):
        A[(i * n) % 64] = i


@T.macro
def memory_of_one_iteration(A, B, S, n, bx):
    for i in T.Parallel(64):
        x = T.alloc_local((1,), "float32")
        x[0] = i
        A[i] = x[0]


@T.macro
def own_elements(A, B, S, n, bx):
    for i, j in T.Parallel(64, 64):
        B[j, i] = B[j, i] + A[i]


@T.macro
def extent_of_run_time(A, B, S, n, bx):
    for i in T.Parallel(n):
        S[0] = i


@T.macro
def atomic(A, B, S, n, bx):
    for i in T.Parallel(64):
        T.atomic_add(S[0], A[i])


ALLOWED = [
    same_value_everywhere,
    one_iteration_only,
    extent_of_one,
    undecidable_index,
    memory_of_one_iteration,
    own_elements,
    extent_of_run_time,
    atomic,
]


@pytest.mark.parametrize("body", ALLOWED, ids=lambda b: b.__name__)
def test_what_is_no_definite_conflict_is_allowed(body):
    verify(kernel_of(body))


@T.macro
def copy_for_some_threads(A, B, S, n, bx):
    tile = T.alloc_shared((64,), "float32")
    if T.get_thread_binding() < 32:
        T.copy(A, tile)


@T.macro
def parallel_for_some_threads(A, B, S, n, bx):
    tx = T.get_thread_binding()
    warp = tx // 32
    if warp == 1:
        for i in T.Parallel(64):
            A[i] = 0


@T.macro
def operator_in_the_else(A, B, S, n, bx):
    if T.get_thread_binding() == 0:
        S[0] = 1
    else:
        T.clear(A)


@T.macro
def loop_as_long_as_the_thread_says(A, B, S, n, bx):
    for k in T.serial(T.get_thread_binding()):
        T.clear(A)


@T.macro
def barrier_for_some_threads(A, B, S, n, bx):
    if T.get_thread_binding() < 32:
        T.sync_threads()


@pytest.mark.parametrize(
    "body",
    [
        copy_for_some_threads,
        parallel_for_some_threads,
        operator_in_the_else,
        loop_as_long_as_the_thread_says,
        barrier_for_some_threads,
    ],
    ids=lambda b: b.__name__,
)
def test_work_of_the_block_under_a_condition_on_the_thread_is_an_error(body):
    with pytest.raises(BarrierDivergence, match="differs between the threads"):
        verify(kernel_of(body))


@T.macro
def condition_of_the_block(A, B, S, n, bx):
    if bx == 0 and n > 2:
        T.clear(A)


@T.macro
def condition_true_for_every_thread(A, B, S, n, bx):
    if T.get_thread_binding() < 64:
        T.clear(A)


@T.macro
def print_by_one_thread(A, B, S, n, bx):
    if T.get_thread_binding() == 0:
        T.print(S[0])
        T.device_assert(n >= 0)


@T.macro
def plain_stores_by_some_threads(A, B, S, n, bx):
    tx = T.get_thread_binding()
    if tx < 32:
        for k in T.serial(tx):
            A[tx] = k


@T.macro
def named_barrier(A, B, S, n, bx):
    if T.get_thread_binding() < 32:
        T.sync_threads(1, 32)


@pytest.mark.parametrize(
    "body",
    [
        condition_of_the_block,
        condition_true_for_every_thread,
        print_by_one_thread,
        plain_stores_by_some_threads,
        named_barrier,
    ],
    ids=lambda b: b.__name__,
)
def test_uniform_conditions_and_work_of_single_threads_are_allowed(body):
    verify(kernel_of(body))


def test_single_thread_kernels_never_diverge():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=1):
            if T.get_thread_binding() == 0:
                T.clear(A)

    verify(kernel)
    a = np.ones(4, np.float32)
    run(kernel, [a])
    assert not a.any()
