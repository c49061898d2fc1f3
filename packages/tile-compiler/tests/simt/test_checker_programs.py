"""The checker on `T.ws`: programs that wait for each other are proved, and whatever they need is missed when it is gone."""

from __future__ import annotations

from typing import Any

import hopper_programs as programs
import numpy as np
import pytest
from device_texts import lowered
from mutants import mutants, refuted

import tilelang
import tilelang.language as T
from tile_compiler.simt.check_synchronization import check_synchronization
from tile_compiler.simt.errors import BarrierMismatch, SharedMemoryRace
from tile_compiler.simt.recall import Recall

#: What may be left out of a program: its barriers are only its threads', which all wait for the mbarrier anyway; without
#: bulk copies the barrier of the block makes mbarriers visible; more registers change no result.
SPARED = {
    "ring": ["tl::register_limit_increase<240>"],
    "weights": ["tl::fence_mbarrier_init", "tl::sync_threads<15, 128>"],
    "shared_out": [],
    "turns": ["tl::fence_mbarrier_init", "tl::sync_threads<14, 128>"],
}
PROGRAMS = {
    "ring": programs.ring(7, 3),
    "weights": programs.weights(3),
    "shared_out": programs.shared_out(16),
    "turns": programs.turns(5),
}


def checked(func: Any) -> tuple[Any, Any]:
    """What the checker sees, and the context."""
    trace, ctx = lowered(func, "sm_90a")
    return next(s.after for s in trace.steps if s.name == "check_synchronization"), ctx


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_part_is_needed(name: str) -> None:
    func, ctx = checked(PROGRAMS[name])
    assert not ctx.report.assumed
    spared = [change.was for mutant, change in mutants(func) if not refuted(mutant, ctx)]
    assert spared == SPARED[name]


def test_a_missing_proxy_fence_is_refused() -> None:
    with pytest.raises(SharedMemoryRace, match="written by ordinary stores, which asynchronous reads") as caught:
        checked(programs.weights(3, fenced=False))
    assert "T.fence_proxy_async() after the stores" in str(caught.value)


def test_arrivals_that_never_come_are_refused() -> None:
    with pytest.raises(BarrierMismatch, match=r"the wait for empty\[0\] never ends") as caught:
        checked(programs.ring(7, 3, arrivals=384))
    assert "256 of 384 arrivals have come" in str(caught.value)


def test_a_barrier_that_goes_two_phases_ahead_is_refused() -> None:
    """The last phase of the loop's barrier may end before the other group has seen the one before: it would wait for ever."""
    with pytest.raises(BarrierMismatch, match=r"the arrival for written\[0\] may be one of an earlier phase"):
        checked(programs.weights(3, own=False))


def test_registers_that_nobody_gives_away_are_waited_for() -> None:
    func, ctx = checked(PROGRAMS["ring"])
    kept = next(mutant for mutant, change in mutants(func) if "register_limit_decrease" in change.was)
    with pytest.raises(BarrierMismatch, match="warps wait for each other and never go on"):
        check_synchronization(kept, ctx)


@pytest.mark.parametrize("wrong", [False, True])
def test_the_last_iterations_of_a_long_loop_are_walked(wrong: bool) -> None:
    """Those in the midst are taken to do as others, which the report says; a wait that only the last one lacks is found."""
    steps = 41

    @T.prim_func
    def main(A: T.Tensor((steps, 128), "float32"), B: T.Tensor((steps, 128), "float32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((128,), "float32")
            full, empty = T.alloc_barrier(128), T.alloc_barrier(128)
            with T.ws(0):
                for i in T.serial(steps):
                    if not wrong or i < steps - 1:
                        T.mbarrier_wait_parity(empty, i % 2 ^ 1)
                    T.copy(A[i, :], s)
                    T.mbarrier_arrive(full)
            with T.ws(1):
                for i in T.serial(steps):
                    T.mbarrier_wait_parity(full, i % 2)
                    T.copy(s, B[i, :])
                    T.mbarrier_arrive(empty)

    if wrong:
        with pytest.raises((SharedMemoryRace, BarrierMismatch)):
            checked(main)
        return
    _, ctx = checked(main)
    assert [a for a in ctx.report.assumed if "iterations 2 to 38 of a loop" in a]


def test_trip_counts_that_memory_decides() -> None:
    """Walked as some, in all programs; a wait that is missing shows in any number."""

    def made(waits: bool) -> Any:
        @T.prim_func
        def main(N: T.Tensor((1,), "int32"), A: T.Tensor((64, 128), "float32"), B: T.Tensor((64, 128), "float32")):
            with T.Kernel(1, threads=256):
                s = T.alloc_shared((128,), "float32")
                full, empty = T.alloc_barrier(128), T.alloc_barrier(128)
                with T.ws(0):
                    for i in T.serial(N[0]):
                        if waits:
                            T.mbarrier_wait_parity(empty, i % 2 ^ 1)
                        T.copy(A[i, :], s)
                        T.mbarrier_arrive(full)
                with T.ws(1):
                    for i in T.serial(N[0]):
                        T.mbarrier_wait_parity(full, i % 2)
                        T.copy(s, B[i, :])
                        T.mbarrier_arrive(empty)

        return main

    checked(made(True))
    with pytest.raises(BarrierMismatch, match=r"the wait for full\[0\] never ends"):
        checked(made(False))


def test_what_is_not_followed_is_assumed() -> None:
    """Threads of a program write where memory says: that stands for any thread of the block."""

    @T.prim_func
    def main(I: T.Tensor((128,), "int32"), A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=256):
            s = T.alloc_shared((128,), "float32")
            full = T.alloc_barrier(128)
            with T.ws(0):
                for i in T.Parallel(128):
                    s[I[i]] = A[i]
                T.mbarrier_arrive(full)
            with T.ws(1):
                T.mbarrier_wait_parity(full, 0)
                T.copy(s, B)

    _, ctx = checked(main)
    assert any("the warpgroups of T.ws wait for each other where they have to" in a for a in ctx.report.assumed)


def test_a_block_waits_for_what_a_group_did_before_its_own_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group's barrier orders nothing for the other threads: the block's comes after it."""
    kernel = tilelang.compile(programs.shared_out(16), target="cuda -arch=sm_90a", execution="emulate")
    text = kernel.get_kernel_source()
    assert text.count("tl::sync_threads()") == 2
    assert text.count("tl::sync_threads<15, 128>()") == 1
    a = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)
    for mode, seed in (("early", 0), ("late", 1), ("late", 2)):
        monkeypatch.setenv("TILELANG_EMULATE_MODE", mode)
        monkeypatch.setenv("TILELANG_EMULATE_SEED", str(seed))
        b, c = np.zeros_like(a), np.zeros_like(a)
        kernel(a, b, c)
        np.testing.assert_array_equal(b, a[::-1, ::-1])
        np.testing.assert_array_equal(c, a)


@pytest.mark.parametrize("writer", [0, 1])
def test_who_reads_with_others_may_overwrite_when_they_have_read(writer: int) -> None:
    """Whichever program is walked first, the other one seems to have read last."""

    def made(waits: bool) -> Any:
        @T.prim_func
        def main(A: T.Tensor((128,), "float32"), B: T.Tensor((2, 128), "float32"), C: T.Tensor((128,), "float32")):
            with T.Kernel(1, threads=256):
                s = T.alloc_shared((128,), "float32")
                read = T.alloc_barrier(128)
                T.copy(A, s)
                T.sync_threads()
                for me in (0, 1):
                    with T.ws(me):
                        for i in T.Parallel(128):
                            B[me, i] = s[i] * 2
                        if me != writer:
                            T.mbarrier_arrive(read)
                        else:
                            if waits:
                                T.mbarrier_wait_parity(read, 0)
                            for i in T.Parallel(128):
                                s[i] = A[i] + 1
                            T.copy(s, C)

        return main

    _, ctx = checked(made(True))
    assert not ctx.report.assumed
    with pytest.raises(SharedMemoryRace):
        checked(made(False))


def test_walks_of_programs_are_not_recalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch with a loop of its own: others may go on while it waits, which the state it begins in does not tell."""
    recalled: list[Any] = []
    monkeypatch.setattr(Recall, "_name", lambda self, node: recalled.append(node))

    @T.prim_func
    def main(A: T.Tensor((4, 128), "float32"), B: T.Tensor((4, 128), "float32")):
        with T.Kernel(2, threads=256) as bx:
            s = T.alloc_shared((128,), "float32")
            full, empty = T.alloc_barrier(128), T.alloc_barrier(128)
            with T.ws(0):
                if bx < 1:
                    for i in T.serial(4):
                        T.mbarrier_wait_parity(empty, i % 2 ^ 1)
                        T.copy(A[i, :], s)
                        T.mbarrier_arrive(full)
            with T.ws(1):
                if bx < 1:
                    for i in T.serial(4):
                        T.mbarrier_wait_parity(full, i % 2)
                        T.copy(s, B[i, :])
                        T.mbarrier_arrive(empty)

    _, ctx = checked(main)
    assert not ctx.report.assumed
    assert not recalled
