"""Stores that all threads come to with one address and one value: the first thread makes them, in order, without barriers."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mutants import mutants

import tilelang.language as T
from tile_compiler.simt.errors import SharedMemoryRace

Places = T.Tensor((8,), "int32")
Out = T.Tensor((8,), "int32")


@T.prim_func
def last_wins(P: Places, B: Out):
    """Where memory says, some places twice; and on two lines."""
    with T.Kernel(1, threads=64):
        for i in T.serial(8):
            B[i] = 100 + i
        for i in T.serial(8):
            B[P[i]] = i


@T.prim_func
def two_dimensions(P: Places, B: Out):
    with T.Kernel(1, threads=(32, 1, 2)):
        for i in T.serial(8):
            B[i] = 100 + i
        for i in T.serial(P[0] + 3):
            B[P[i]] = i


@T.prim_func
def while_it_lasts(P: Places, B: Out):
    with T.Kernel(1, threads=64):
        k = T.alloc_var("int32", init=0)
        for i in T.serial(8):
            B[i] = 100 + i
        while k < 8:
            B[P[k]] = k
            k = k + 1
            if P[k - 1] > 6:
                break


@pytest.mark.parametrize("kernel", [last_wins, two_dimensions, while_it_lasts])
def test_one_thread_stores_what_all_would(proved: Any, kernel: Any) -> None:
    places = np.array([3, 1, 3, 5, 1, 7, 0, 7], "int32")
    trace, _ = proved(kernel, [places, np.zeros(8, "int32")], passes=False)
    checked = trace.after("check_synchronization")
    assert not list(mutants(checked))  # no barrier
    assert len(re.findall(r"if tx == 0", str(checked))) == 2


@T.prim_func
def by_some(P: Places, B: Out):
    """Not all threads come here."""
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        if tx > 60:
            B[0] = P[0]


@T.prim_func
def while_some_go_on(P: Places, B: Out):
    """The first thread has left when others store."""
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        for i in T.serial(8):
            if P[i] > tx:
                break
            B[i] = 5


@T.prim_func
def of_programs(P: Places, B: Out):
    """The first thread is not among those that store."""
    with T.Kernel(1, threads=256):
        with T.ws(0):
            B[1] = 7
        with T.ws(1):
            B[0] = P[0]


@pytest.mark.parametrize("kernel", [by_some, while_some_go_on, of_programs])
def test_threads_that_are_alone_store_for_themselves(proved: Any, kernel: Any) -> None:
    """No other thread does it for them."""
    arch = "sm_90a" if kernel is of_programs else "sm_80"
    places = np.array([40, 9, 70, 64, 1, 2, 3, 90], "int32")
    trace, _ = proved(kernel, [places, np.zeros(8, "int32")], arch=arch, passes=False)
    assert str(trace.after("store_once")) == str(trace.after("place_wgmma_waits"))


def test_values_of_threads_are_still_a_race(lower: Callable[..., Any]) -> None:
    @T.prim_func
    def race(P: Places, B: Out):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            B[0] = 1
            B[0] = P[tx % 8]

    with pytest.raises(SharedMemoryRace):
        lower(race)


def test_a_barrier_that_only_the_first_iteration_needs_stands_before_the_loop(proved: Any) -> None:
    """Also where the loop has another one in it."""

    @T.prim_func
    def running(P: Places, B: Out):
        with T.Kernel(1, threads=64):
            known = T.alloc_shared((8,), "int32")
            sum = T.alloc_var("int32", init=0)
            T.copy(P, known)
            for i in T.serial(8):
                for _ in T.serial(known[i]):
                    sum = sum + 1
                B[i] = sum

    trace, _ = proved(running, [np.arange(8, dtype="int32"), np.zeros(8, "int32")], passes=False)
    text = str(trace.after("check_synchronization"))
    assert text.count("sync_threads") == 1
    assert text.index("sync_threads") < text.index("for i in")
