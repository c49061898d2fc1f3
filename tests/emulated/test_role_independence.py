"""Loops around a producer's copies that hang on what the threads compute: the producer cannot know it, and has no part.

Every kernel here adds rows of A, scaled, in a pipelined loop of tiles; what differs is who says how often, or which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T

ROWS, WIDTH = 8, 64
THREADS = 64


def while_of_a_shared_flag() -> Any:
    """A thread counts down in shared memory what all of them look at."""

    @T.prim_func
    def main(A: T.Tensor((ROWS, WIDTH), "float32"), N: T.Tensor((1,), "int32"), C: T.Tensor((WIDTH,), "float32")):
        with T.Kernel(1, threads=THREADS):
            s = T.alloc_shared((WIDTH,), "float32")
            left = T.alloc_shared((1,), "int32")
            total = T.alloc_fragment((WIDTH,), "float32")
            T.clear(total)
            for i in T.Parallel(1):
                left[i] = N[i]
            while left[0] > 0:
                for k in T.Pipelined(ROWS, num_stages=2):
                    T.copy(A[k, :], s)
                    for i in T.Parallel(WIDTH):
                        total[i] = total[i] + s[i]
                for i in T.Parallel(1):
                    left[i] = left[i] - 1
            T.copy(total, C)

    return main


def condition_on_shared_memory() -> Any:
    @T.prim_func
    def main(A: T.Tensor((ROWS, WIDTH), "float32"), N: T.Tensor((1,), "int32"), C: T.Tensor((WIDTH,), "float32")):
        with T.Kernel(1, threads=THREADS):
            s = T.alloc_shared((WIDTH,), "float32")
            wanted = T.alloc_shared((4,), "int32")
            total = T.alloc_fragment((WIDTH,), "float32")
            T.clear(total)
            for i in T.Parallel(4):
                wanted[i] = T.if_then_else(i < N[0], 1, 0)
            for turn in T.serial(4):
                if wanted[turn] > 0:
                    for k in T.Pipelined(ROWS, num_stages=2):
                        T.copy(A[k, :], s)
                        for i in T.Parallel(WIDTH):
                            total[i] = total[i] + s[i]
            T.copy(total, C)

    return main


def trip_count_of_a_fragment() -> Any:
    """The bound is a sum that the threads reduce."""

    @T.prim_func
    def main(A: T.Tensor((ROWS, WIDTH), "float32"), N: T.Tensor((1,), "int32"), C: T.Tensor((WIDTH,), "float32")):
        with T.Kernel(1, threads=THREADS):
            s = T.alloc_shared((WIDTH,), "float32")
            parts = T.alloc_fragment((1, WIDTH), "int32")
            count = T.alloc_fragment((1,), "int32")
            total = T.alloc_fragment((WIDTH,), "float32")
            T.clear(total)
            for i, j in T.Parallel(1, WIDTH):
                parts[i, j] = T.if_then_else(j < N[0], ROWS, 0)
            T.reduce_sum(parts, count, dim=1)
            for k in T.Pipelined(count[0], num_stages=2):
                T.copy(A[k % ROWS, :], s)
                for i in T.Parallel(WIDTH):
                    total[i] = total[i] + s[i]
            T.copy(total, C)

    return main


def scalar_read_from_shared_memory() -> Any:
    """The bound has been read into a variable before."""

    @T.prim_func
    def main(A: T.Tensor((ROWS, WIDTH), "float32"), N: T.Tensor((1,), "int32"), C: T.Tensor((WIDTH,), "float32")):
        with T.Kernel(1, threads=THREADS):
            s = T.alloc_shared((WIDTH,), "float32")
            bound = T.alloc_shared((1,), "int32")
            count = T.alloc_var("int32")
            total = T.alloc_fragment((WIDTH,), "float32")
            T.clear(total)
            for i in T.Parallel(1):
                bound[i] = N[i]
            count = 0
            if bound[0] > 0:
                count = bound[0]
            for k in T.Pipelined(count * ROWS, num_stages=2):
                T.copy(A[k % ROWS, :], s)
                for i in T.Parallel(WIDTH):
                    total[i] = total[i] + s[i]
            T.copy(total, C)

    return main


def row_read_from_shared_memory() -> Any:
    """Not how often: which row comes next."""

    @T.prim_func
    def main(A: T.Tensor((ROWS, WIDTH), "float32"), N: T.Tensor((1,), "int32"), C: T.Tensor((WIDTH,), "float32")):
        with T.Kernel(1, threads=THREADS):
            s = T.alloc_shared((WIDTH,), "float32")
            turns = T.alloc_shared((4,), "int32")
            total = T.alloc_fragment((WIDTH,), "float32")
            T.clear(total)
            for i in T.Parallel(4):
                turns[i] = i + 1
            for turn in T.serial(N[0]):
                base = turns[turn]
                for k in T.Pipelined(ROWS, num_stages=2):
                    T.copy(A[(k + base) % ROWS, :], s)
                    for i in T.Parallel(WIDTH):
                        total[i] = total[i] + s[i]
            T.copy(total, C)

    return main


def left_on_shared_memory() -> Any:
    """The loop around is left where shared memory says so."""

    @T.prim_func
    def main(A: T.Tensor((ROWS, WIDTH), "float32"), N: T.Tensor((1,), "int32"), C: T.Tensor((WIDTH,), "float32")):
        with T.Kernel(1, threads=THREADS):
            s = T.alloc_shared((WIDTH,), "float32")
            done = T.alloc_shared((1,), "int32")
            total = T.alloc_fragment((WIDTH,), "float32")
            T.clear(total)
            for i in T.Parallel(1):
                done[i] = 0
            for turn in T.serial(8):
                for i in T.Parallel(1):
                    if turn >= N[0]:
                        done[i] = 1
                if done[0] > 0:
                    break
                for k in T.Pipelined(ROWS, num_stages=2):
                    T.copy(A[k, :], s)
                    for i in T.Parallel(WIDTH):
                        total[i] = total[i] + s[i]
            T.copy(total, C)

    return main


def memory_that_the_kernel_writes() -> Any:
    """The bound goes through the memory of the result."""

    @T.prim_func
    def main(A: T.Tensor((ROWS, WIDTH), "float32"), N: T.Tensor((1,), "int32"), C: T.Tensor((WIDTH,), "float32")):
        with T.Kernel(1, threads=THREADS):
            s = T.alloc_shared((WIDTH,), "float32")
            total = T.alloc_fragment((WIDTH,), "float32")
            T.clear(total)
            for i in T.Parallel(WIDTH):
                C[i] = T.cast(N[0] * ROWS, "float32")
            T.sync_threads()
            for k in T.Pipelined(T.cast(C[0], "int32"), num_stages=2):
                T.copy(A[k % ROWS, :], s)
                for i in T.Parallel(WIDTH):
                    total[i] = total[i] + s[i]
            T.sync_threads()
            T.copy(total, C)

    return main


DEPENDENT = [
    while_of_a_shared_flag,
    condition_on_shared_memory,
    trip_count_of_a_fragment,
    scalar_read_from_shared_memory,
    row_read_from_shared_memory,
    left_on_shared_memory,
    memory_that_the_kernel_writes,
]


def runs(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kernel, after it gave the sum of N times all rows in the emulator, with copies early and late."""
    kernel = tilelang.compile(make(), target="cuda -arch=sm_90a", execution="emulate")
    rows = np.random.default_rng(0).integers(-8, 8, (ROWS, WIDTH)).astype("float32")
    for mode in ("early", "late"):
        monkeypatch.setenv("TILELANG_EMULATE_MODE", mode)
        for times in (0, 1, 3):
            found = np.zeros(WIDTH, "float32")
            kernel(rows, np.array([times], "int32"), found)
            np.testing.assert_array_equal(found, times * rows.sum(0))
    return kernel


@pytest.mark.parametrize("make", DEPENDENT)
def test_what_the_threads_compute_gives_no_roles(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = runs(make, monkeypatch)
    assert "tl::tma_load" not in kernel.get_kernel_source()


def scalars_of_arguments(versions: int, width: int) -> Any:
    """Counted in variables, read from memory that the kernel only reads, left early: a producer can follow."""

    @T.prim_func
    def main(A: T.Tensor((ROWS, width), "float32"), N: T.Tensor((1,), "int32"), C: T.Tensor((width,), "float32")):
        with T.Kernel(1, threads=THREADS):
            s = T.alloc_shared((width,), "float32")
            left = T.alloc_var("int32")
            total = T.alloc_fragment((width,), "float32")
            T.clear(total)
            left = N[0] * 2
            while left > 0:
                left = left - 1
                if left % 2 == 0:
                    continue
                for k in T.Pipelined(ROWS, num_stages=versions):
                    T.copy(A[(k + left) % ROWS, 0:width], s)
                    for i in T.Parallel(width):
                        total[i] = total[i] + s[i]
            T.copy(total, C)

    return main


@pytest.mark.parametrize("versions", [2, pytest.param(3, marks=pytest.mark.full)])
def test_what_arguments_say_a_producer_can_follow(versions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tile is a vector: its versions lie one behind the other."""
    kernel = runs(lambda: scalars_of_arguments(versions, WIDTH), monkeypatch)
    assert "tl::tma_load" in kernel.get_kernel_source()


def test_versions_that_do_not_begin_where_boxes_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 bytes of a version: the next one would begin at no multiple of 128, so the threads bring them."""
    monkeypatch.setattr(f"{__name__}.WIDTH", 16)
    kernel = runs(lambda: scalars_of_arguments(2, 16), monkeypatch)
    assert "tl::tma_load" not in kernel.get_kernel_source()


def test_a_layout_that_is_no_order_of_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's layout decides who brings the tile, not the other way around."""

    @T.prim_func
    def main(A: T.Tensor((ROWS, WIDTH), "float32"), N: T.Tensor((1,), "int32"), C: T.Tensor((WIDTH,), "float32")):
        with T.Kernel(1, threads=THREADS):
            s = T.alloc_shared((WIDTH,), "float32")
            total = T.alloc_fragment((WIDTH,), "float32")
            T.annotate_layout({s: T.Layout((WIDTH,), lambda i: i * 2)})
            T.clear(total)
            for k in T.Pipelined(N[0] * ROWS, num_stages=2):
                T.copy(A[k % ROWS, :], s)
                for i in T.Parallel(WIDTH):
                    total[i] = total[i] + s[i]
            T.copy(total, C)

    assert "tl::tma_load" not in runs(lambda: main, monkeypatch).get_kernel_source()
