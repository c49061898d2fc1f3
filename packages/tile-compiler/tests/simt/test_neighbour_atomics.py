"""Atomic additions to neighbours by one instruction: where the architecture has it, else one by one, with the reason.

All values are small integers, so that every order of additions gives the same sum: results are compared exactly.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from conftest import agrees
from device_texts import emulated, lowered, printed
from mutants import mutants

import tilelang.language as T
from tile_compiler.simt.check_synchronization import check_synchronization
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.errors import SharedMemoryRace

MOST = {
    ("sm_80", "float32"): 1, ("sm_80", "float16"): 2, ("sm_80", "bfloat16"): 1,
    ("sm_90a", "float32"): 4, ("sm_90a", "float16"): 4, ("sm_90a", "bfloat16"): 4,
    ("gfx90a", "float32"): 1, ("gfx90a", "float16"): 2, ("gfx90a", "bfloat16"): 1,
    ("gfx942", "float32"): 1, ("gfx942", "float16"): 2, ("gfx942", "bfloat16"): 2,
}  # fmt: skip
EVERY = pytest.mark.parametrize(("arch", "dtype"), list(MOST), ids="-".join)


def integers(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    return rng.integers(-4, 5, shape).astype(dtype)


def widths(func: Any, arch: str) -> tuple[set[int], list[str], dict[str, int]]:
    """(neighbours of the additions in the text, 1 for single ones; the notes on them; the addresses assumed)."""
    trace, ctx = lowered(func, arch)
    source = printed(func, trace.steps[-1].after, ctx).source
    found = {int(n or 1) for n in re.findall(r"tl::atomic_add(?:_x(\d))?(?:<[\w:]+>)?\(", source)}
    return found, [note for _, note in ctx.report.notes if note.startswith("atomic")], ctx.alignments


def total(func: Any, arch: str, args: list[Any], want: Any) -> None:
    """The threads, and the text in the emulator, add what float64 gives to the last argument."""
    agrees(func, args, 0, 0, arch, passes=False)
    got = emulated(func, args, arch)[-1]
    np.testing.assert_array_equal(got.astype("float64"), want)


def column_sums(rows: int, cols: int, dtype: str) -> Any:
    """S[r % 16, j] += A[r, j], from blocks that meet."""

    @T.prim_func
    def sums(A: T.Tensor((rows, cols), dtype), S: T.Tensor((16, cols), dtype)):
        with T.Kernel(T.ceildiv(cols, 32), T.ceildiv(rows, 16), threads=64) as (bx, by):
            for i, j in T.Parallel(16, 32):
                T.atomic_add(S[i, bx * 32 + j], A[by * 16 + i, bx * 32 + j])

    return sums


def summed(a: Any) -> Any:
    return a.astype("float64").reshape(-1, 16, a.shape[1]).sum(0)


@EVERY
def test_a_loop_adds_the_neighbours_of_a_thread_at_once(rng: Any, arch: str, dtype: str) -> None:
    func, a = column_sums(48, 64, dtype), integers(rng, (48, 64), dtype)
    most = MOST[arch, dtype]
    found, notes, alignments = widths(func, arch)
    assert found == {most}
    if most == 1:
        assert notes == [f"atomic additions to S: one by one, as {arch} has no addition of several {dtype}"]
        assert "S" not in alignments
    else:
        assert notes == [f"atomic additions to S: {most} neighbours at once"]
        assert alignments["S"] == most * a.itemsize
    total(func, arch, [a, np.zeros_like(a[:16])], summed(a))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "gfx942"])
@pytest.mark.parametrize(("cols", "wide"), [(40, True), (34, True), (33, False)])
def test_rows_that_blocks_and_vectors_do_not_divide(rng: Any, arch: str, cols: int, wide: bool) -> None:
    """A vector lies in a row as a whole or not at all; where rows begin at odd elements there is none."""
    func, a = column_sums(32, cols, "float16"), integers(rng, (32, cols), "float16")
    found, notes, _ = widths(func, arch)
    most = MOST[arch, "float16"] if cols % 4 == 0 else 2
    assert found == {most if wide else 1}
    assert wide or any("no thread is known to have neighbours" in note for note in notes)
    total(func, arch, [a, np.zeros_like(a[:16])], summed(a))


@EVERY
def test_a_tile_in_registers(rng: Any, arch: str, dtype: str) -> None:
    @T.prim_func
    def sums(A: T.Tensor((64, 64), dtype), S: T.Tensor((16, 64), dtype)):
        with T.Kernel(4, threads=64) as bx:
            tile = T.alloc_fragment((16, 64), dtype)
            T.copy(A[bx * 16, 0], tile)
            T.atomic_add(S[0:16, 0:64], tile)

    a = integers(rng, (64, 64), dtype)
    assert widths(sums, arch)[0] == {MOST[arch, dtype]}
    total(sums, arch, [a, np.zeros_like(a[:16])], summed(a))


@EVERY
@pytest.mark.parametrize("count", [2, 4])
def test_addx2_and_addx4(rng: Any, arch: str, dtype: str, count: int) -> None:
    """In a loop of threads and by the thread's own number; neighbours of the value and one value for all."""
    add = {2: T.atomic_addx2, 4: T.atomic_addx4}[count]

    @T.prim_func
    def sums(A: T.Tensor((64,), dtype), S: T.Tensor((64,), dtype)):
        with T.Kernel(3, threads=64):
            tx = T.get_thread_binding()
            for i in T.Parallel(64 // count):
                add(S[i * count], A[i * count])
            if tx < 8:
                add(S[tx * count], 1)

    a = integers(rng, (64,), dtype)
    want = 3 * a.astype("float64")
    want[: 8 * count] += 3
    assert widths(sums, arch)[0] == {min(count, MOST[arch, dtype])}
    total(sums, arch, [a, np.zeros_like(a)], want)


def test_four_at_an_even_place_are_two_pairs(rng: Any) -> None:
    @T.prim_func
    def sums(A: T.Tensor((68,), "float32"), S: T.Tensor((68,), "float32")):
        with T.Kernel(2, threads=32):
            for i in T.Parallel(16):
                T.atomic_addx4(S[i * 4 + 2], A[i * 4])

    a = integers(rng, (68,), "float32")
    assert widths(sums, "sm_90a")[0] == {2}
    total(sums, "sm_90a", [a, np.zeros_like(a)], np.r_[0, 0, 2 * a[:64].astype("float64"), 0, 0])


def test_a_vector_past_the_end_is_left_out_as_a_whole(rng: Any) -> None:
    n = T.dynamic("n")

    @T.prim_func
    def sums(A: T.Tensor((n,), "float32"), S: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 128), threads=32) as bx:
            T.assume(n % 4 == 0)
            for i in T.Parallel(32):
                T.atomic_addx4(S[bx * 128 + i * 4], A[bx * 128 + i * 4])

    a = integers(rng, (140,), "float32")
    assert widths(sums, "sm_90a")[0] == {4}
    total(sums, "sm_90a", [a, np.zeros_like(a)], a.astype("float64"))


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("odd place", "S[{i} * 2 + 1] is not provably at a multiple of two elements, with its neighbour in bounds"),
        ("order", "additions of several are relaxed, and these are to be release"),
        ("shared", "additions of several are of global memory only"),
        ("dependent", "a value may depend on what is added before"),
    ],
)
def test_what_stays_single_and_why(rng: Any, case: str, reason: str) -> None:
    order = "release" if case == "order" else None
    place = 1 if case == "odd place" else 0

    @T.prim_func
    def sums(A: T.Tensor((66,), "float32"), S: T.Tensor((66,), "float32")):
        with T.Kernel(1, threads=32):
            s = T.alloc_shared((66,), "float32")
            if case == "shared":
                T.copy(S, s)
            for i in T.Parallel(32):
                if case == "shared":
                    T.atomic_addx2(s[i * 2], A[i * 2])
                elif case == "dependent":
                    T.atomic_add(S[i * 2], A[i * 2])
                    T.atomic_add(S[i * 2 + 1], A[i * 2 + 1] + S[i * 2])
                else:
                    T.atomic_addx2(S[i * 2 + place], A[i * 2], memory_order=order)
            if case == "shared":
                T.copy(s, S)

    found, notes, _ = widths(sums, "sm_90a")
    assert found == {1}
    wanted = re.escape(reason).replace(re.escape("{i}"), r"\w+")
    assert any(re.fullmatch(f"atomic additions to [sS]: one by one, as {wanted}", note) for note in notes), notes
    a = integers(rng, (66,), "float32")
    want = np.zeros(66)
    want[place : place + 64] = a[:64]
    if case == "dependent":
        want[1:64:2] += want[0:64:2]
    total(sums, "sm_90a", [a, np.zeros_like(a)], want)


def test_old_values_are_of_single_additions(rng: Any) -> None:
    @T.prim_func
    def taken(A: T.Tensor((64,), "float32"), O: T.Tensor((64,), "float32"), S: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=16):
            for i in T.Parallel(64):
                O[i] = T.atomic_add(S[i], A[i], return_prev=True)

    a = integers(rng, (64,), "float32")
    assert widths(taken, "sm_90a")[0] == {1}
    total(taken, "sm_90a", [a, np.ones_like(a), np.full_like(a, 3)], a + 3.0)


def test_a_loop_that_reads_what_it_adds_to_stays_in_order(rng: Any) -> None:
    @T.prim_func
    def doubled(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), S: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=16):
            for i in T.Parallel(64):
                T.atomic_add(S[i], A[i])
                B[i] = S[i]
                T.atomic_add(S[i], B[i])

    a = integers(rng, (64,), "float32")
    assert widths(doubled, "sm_90a")[0] == {1}
    total(doubled, "sm_90a", [a, np.zeros_like(a), np.zeros_like(a)], 2.0 * a)


@pytest.mark.parametrize("lane", [0, 3])
def test_the_checker_sees_every_neighbour(lane: int) -> None:
    """The thread before reads an element of the four: behind a barrier, without which there is a race."""

    @T.prim_func
    def racy(B: T.Tensor((128,), "float32"), S: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            T.atomic_addx4(S[tx * 4], 1)
            if tx < 31:
                B[tx] = S[(tx + 1) * 4 + lane]

    checked = lowered(racy, "sm_90a")[0].after("check_synchronization")
    ((without, _),) = mutants(checked)
    with pytest.raises(SharedMemoryRace, match="a race on S"):
        check_synchronization(without, SimtContext())
