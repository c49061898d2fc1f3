"""Loops that threads leave, together or apart, by `break` and `continue`: what is ordered behind them, and what is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mutants import all_needed, mutants, refuted

import tilelang.language as T
from tile_compiler.simt.errors import SharedMemoryRace

Flags = T.Tensor((8,), "int32")
Each = T.Tensor((8, 64), "int32")
Rows = T.Tensor((8, 64), "float32")
Row = T.Tensor((64,), "float32")

FLAGS = np.array([0, 1, 0, 0, 1, 1, 0, 0], "int32")


@T.prim_func
def overwritten(F: Flags, A: Rows, B: Row):
    """In the iteration after one that is cut short, what was written there is read without a barrier between."""
    with T.Kernel(1, threads=64):
        s, total = T.alloc_shared((64,), "float32"), T.alloc_fragment((64,), "float32")
        T.clear(s)
        T.clear(total)
        for k in T.serial(8):
            for i in T.Parallel(64):
                total[i] = total[i] + s[63 - i]
            T.sync_threads()
            for i in T.Parallel(64):
                s[i] = A[k, i]
            if F[k] > 0:
                continue
            T.sync_threads()
        T.copy(total, B)


@T.prim_func
def every_third(F: Flags, A: Rows, B: Row):
    """The same, where the iteration's number says which are cut short."""
    with T.Kernel(1, threads=64):
        s, total = T.alloc_shared((64,), "float32"), T.alloc_fragment((64,), "float32")
        T.clear(s)
        T.clear(total)
        for k in T.serial(8):
            for i in T.Parallel(64):
                total[i] = total[i] + s[63 - i]
            T.sync_threads()
            for i in T.Parallel(64):
                s[i] = A[k, i]
            if k % 3 == 1:
                continue
            T.sync_threads()
        T.copy(total, B)


@T.prim_func
def counted(F: Flags, A: Rows, B: Row):
    """While flags last."""
    with T.Kernel(1, threads=64):
        s, total = T.alloc_shared((64,), "float32"), T.alloc_fragment((64,), "float32")
        k = T.alloc_var("int32", init=0)
        T.clear(s)
        T.clear(total)
        while k < 8:
            for i in T.Parallel(64):
                total[i] = total[i] + s[63 - i]
            T.sync_threads()
            for i in T.Parallel(64):
                s[i] = A[k, i]
            k = k + 1
            if F[k - 1] > 0:
                continue
            T.sync_threads()
        T.copy(total, B)


CUT_SHORT = {"by_memory": overwritten, "by_number": every_third, "while": counted}


@pytest.mark.parametrize("kernel", CUT_SHORT.values(), ids=CUT_SHORT)
def test_an_iteration_that_is_cut_short_goes_on_with_the_next(rng: Any, proved: Any, kernel: Any) -> None:
    args = [FLAGS, rng.standard_normal((8, 64)).astype("float32"), np.zeros(64, "float32")]
    trace, _ = proved(kernel, args, passes=False)
    without = [mutant for mutant, change in mutants(trace.steps[-1].after) if change.was == "tl::sync_threads"]
    assert [refuted(mutant) for mutant in without] == [True, True, False]  # the last one is the user's


@T.prim_func
def left_apart(F: Each, A: Rows, B: Row):
    with T.Kernel(1, threads=64):
        s = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        s[tx] = 0
        for k in T.serial(8):
            if F[k, tx] > 0:
                break
            s[tx] = A[k, tx]
            B[tx] = s[63 - tx]


@T.prim_func
def cut_short_apart(F: Each, A: Rows, B: Row):
    with T.Kernel(1, threads=64):
        s = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        s[tx] = 0
        for k in T.serial(8):
            if F[k, tx] > 0:
                continue
            T.sync_threads()
            s[tx] = A[k, tx]


@T.prim_func
def counted_apart(F: Each, A: Rows, B: Row):
    """How often the second loop runs is a number of each thread."""
    with T.Kernel(1, threads=64):
        s = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        k = T.alloc_var("int32", init=0)
        for i in T.serial(8):
            if F[i, tx] > 0:
                break
            k = k + 1
        for i in T.serial(k):
            s[tx] = A[i, tx]
            B[tx] = s[63 - tx]


@T.prim_func
def counted_apart_by_the_user(F: Each, A: Rows, B: Row):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        k = T.alloc_var("int32", init=0)
        for i in T.serial(8):
            if F[i, tx] > 0:
                break
            k = k + 1
        if k == 8:
            T.sync_threads()
        B[tx] = A[0, tx]


@T.prim_func
def known_apart(F: Each, A: Rows, B: Row):
    """Who leaves when is known."""
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        k = T.alloc_var("int32", init=0)
        for i in T.serial(8):
            if i > tx:
                break
            k = k + 1
        if k == 8:
            T.sync_threads()
        B[tx] = A[0, tx]


@T.prim_func
def chosen_apart(F: Each, A: Rows, B: Row):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        k = T.alloc_var("int32", init=0)
        if F[0, tx] > 0:
            k = 1
        else:
            k = 1
            if F[1, tx] > 0:
                k = 0
        if k == 1:
            T.sync_threads()
        B[tx] = A[0, tx]


@T.prim_func
def changed_in_one_way(F: Each, A: Rows, B: Row):
    """By a function that some threads call."""
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        k = T.alloc_local((1,), "int32")
        k[0] = 0
        if F[0, tx] > 0:
            T.call_extern("handle", "change", T.address_of(k[0]))
        if k[0] == 0:
            T.sync_threads()
        B[tx] = A[0, tx]


@T.prim_func
def known_in_one_way(F: Each, A: Rows, B: Row):
    """What a variable is where it was not set, nobody knows."""
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        k = T.alloc_var("int32")
        k = F[0, tx]
        if F[1, 0] > 0:
            k = 0
        if k == 0:
            T.sync_threads()
        B[tx] = A[0, tx]


@pytest.mark.parametrize(
    "kernel",
    [
        left_apart,
        cut_short_apart,
        counted_apart,
        counted_apart_by_the_user,
        known_apart,
        chosen_apart,
        known_in_one_way,
        changed_in_one_way,
    ],
)
def test_threads_that_go_apart_meet_at_no_barrier(lower: Callable[..., Any], kernel: Any) -> None:
    with pytest.raises(SharedMemoryRace):
        lower(kernel)


@T.prim_func
def unknown_count(F: Flags, A: Rows, B: Row):
    """After a number of iterations that memory decides, a variable has any of their values."""
    with T.Kernel(1, threads=64):
        s = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        k = T.alloc_var("int32", init=0)
        s[tx] = A[0, tx]
        for _ in T.serial(F[0]):
            k = k + 1
        if k > 1:
            B[tx] = s[63 - tx]


@T.prim_func
def unknown_break(F: Flags, A: Rows, B: Row):
    with T.Kernel(1, threads=64):
        s = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        k = T.alloc_var("int32", init=0)
        s[tx] = A[0, tx]
        for i in T.serial(8):
            if F[i] > 0:
                break
            k = k + 1
        if k == 5:
            B[tx] = s[63 - tx]


@pytest.mark.parametrize("kernel", [unknown_count, unknown_break])
def test_what_a_loop_counts_until_memory_ends_it_is_not_known(lower: Callable[..., Any], kernel: Any) -> None:
    """The barrier under the condition is needed, whatever the number of iterations that the checker walked."""
    trace, _ = lower(kernel)
    assert all_needed(trace.steps[-1].after) == 1


@T.prim_func
def left_apart_while(F: Each, A: Rows, B: Row):
    with T.Kernel(1, threads=64):
        s = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        s[tx] = 0
        while F[7, 0] > 0:
            if F[0, tx] > 0:
                break
            s[tx] = A[0, tx]
            B[tx] = s[63 - tx]


@T.prim_func
def counted_apart_while(F: Each, A: Rows, B: Row):
    with T.Kernel(1, threads=64):
        s = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        k = T.alloc_var("int32", init=0)
        while F[7, 0] > 0:
            if F[0, tx] > 0:
                break
            k = k + 1
        for i in T.serial(k):
            s[tx] = A[i, tx]
            B[tx] = s[63 - tx]


@pytest.mark.parametrize("kernel", [left_apart, counted_apart, left_apart_while, counted_apart_while])
def test_no_barrier_is_placed_where_threads_go_apart(lower: Callable[..., Any], kernel: Any) -> None:
    """What is refused are the user's lines, not a barrier of ours."""
    with pytest.raises(SharedMemoryRace, match="a race on s"):
        lower(kernel)


@T.prim_func
def some_came_in(F: Each, A: Rows, B: Row):
    """All that come into the loop set the variable to one value."""
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        k = T.alloc_var("int32", init=0)
        B[0] = 1
        for _ in T.serial(F[0, tx]):
            k = F[1, 0]
        B[0] = T.cast(k, "float32")


@T.prim_func
def where_registers_say(F: Each, A: Rows, B: Row):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        k = T.alloc_var("int32", init=0)
        for i in T.serial(8):
            if F[i, tx] > 0:
                B[k] = T.cast(i, "float32")
            if i % 2 == 1:
                k = k + 1


@pytest.mark.parametrize("kernel", [some_came_in, where_registers_say])
def test_what_threads_store_apart_is_a_race(lower: Callable[..., Any], kernel: Any) -> None:
    with pytest.raises(SharedMemoryRace, match="race on B"):
        lower(kernel)
