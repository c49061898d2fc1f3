"""Tensors that a loop writes again and again: where different threads may write an element, barriers stand between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mutants import all_needed
from tvm import tirx as tir

import tilelang.language as T
from tile_compiler.simt.beside import Names, beside
from tile_compiler.simt.errors import SharedMemoryRace
from tile_compiler.simt.memory_effects import Effect
from tile_compiler.simt.uniformity import Uniformity
from tile_compiler.simt.written_again import written_again
from tilelang.ir import tile_ir

m, n, parts, pitch = (T.dynamic(name) for name in ("m", "n", "parts", "pitch"))
A64 = T.Tensor((8, 64), "float32")


def barriers(trace: Any) -> int:
    return str(trace.after("check_synchronization")).count('"tl::sync_threads"')


@T.prim_func
def turned(A: A64, B: T.Tensor((8, 64), "float32")):
    """Every iteration writes the row in another order."""
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        for k in T.serial(8):
            B[0, (tx + k) % 64] = A[k, tx]


@T.prim_func
def overlapping(A: A64, B: T.Tensor((8, 64), "float32")):
    """A row ends where the next one begins."""
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        for k in T.serial(7):
            B[k // 2 + tx // 32, tx % 32 * 2] = A[k, tx]


@T.prim_func
def rows_in_turn(A: A64, B: T.Tensor((8, 64), "float32")):
    """Beside the row of the next iteration, but not of the one after it."""
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        for k in T.serial(8):
            B[k % 2, (tx + k) % 64] = A[k, tx]


@T.prim_func
def by_some(A: A64, B: T.Tensor((8, 64), "float32")):
    """One element, by threads that differ from iteration to iteration."""
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        for k in T.serial(8):
            if A[k, tx] > 0.5:
                B[0, 0] = T.cast(k, "float32")


@pytest.mark.parametrize("kernel", [turned, overlapping, rows_in_turn, by_some])
def test_the_last_iteration_wins(rng: Any, proved: Any, kernel: Any) -> None:
    args = [rng.standard_normal((8, 64)).astype("float32"), np.zeros((8, 64), "float32")]
    trace, _ = proved(kernel, args, passes=False)
    assert all_needed(trace.after("check_synchronization")) == barriers(trace) == 1


@T.prim_func
def rows_by_turns(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32")):
    """By how many blocks is not known, but that there is one."""
    with T.Kernel(parts, threads=64) as part:
        for turn in T.serial(T.ceildiv(m - part * 2, parts * 2)):
            for i, j in T.Parallel(2, 64):
                if (part + turn * parts) * 2 + i < m:
                    B[(part + turn * parts) * 2 + i, j] = A[(part + turn * parts) * 2 + i, j]


@T.prim_func
def one_thread_each(A: A64, B: T.Tensor((8, 64), "float32")):
    """The element of a thread is the same in every iteration."""
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        for k in T.serial(8):
            B[tx // 8, tx % 8 * 2] = A[k, tx]


@T.prim_func
def rows_in_rows(A: A64, B: T.Tensor((8, 64), "float32")):
    """In an iteration of the outer loop, those of the inner one lie beside each other."""
    with T.Kernel(1, threads=16):
        tx = T.get_thread_binding()
        for k in T.serial(8):
            for part in T.serial(4):
                B[k, part * 16 + tx] = A[k, part * 16 + tx]


@T.prim_func
def tiles(A: A64, B: T.Tensor((8, 64), "float32")):
    with T.Kernel(2, threads=16) as block:
        tx = T.get_thread_binding()
        for row, column in T.Persistent([8, 4], 2, block):
            B[row, column * 16 + tx] = A[row, column * 16 + tx]


def test_iterations_that_write_beside_each_other_need_no_barrier(lower: Callable[..., Any]) -> None:
    for kernel in (rows_by_turns, one_thread_each, rows_in_rows, tiles):
        assert barriers(lower(kernel)[0]) == 0


def by_turns(step: int, moving: bool = False) -> Any:
    """Tiles of eight rows, at multiples of `step` of them, forwards and backwards in turns; `moving`: the columns of a thread
    do so too."""

    @T.prim_func
    def main(A: A64, B: T.Tensor((64, 8), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            for k in T.serial(7):
                tile = T.if_then_else(k % 2 == 0, k, 7 - k)
                B[tile * step + tx // 8, (tx + k) % 8 if moving else tx % 8] = A[k, tx]

    return main


def test_tiles_in_any_order_need_no_barrier(rng: Any, proved: Any) -> None:
    """Two of them are apart, or the same, and then each element is the same thread's: nothing is kept of who wrote it."""
    args = [rng.standard_normal((8, 64)).astype("float32"), np.zeros((64, 8), "float32")]
    trace, _ = proved(by_turns(8), args, passes=False)
    assert barriers(trace) == 0
    (kernel,) = tile_ir.kernels(trace.after("check_synchronization"))
    assert written_again(kernel).tensors == written_again(kernel).in_one_statement == set()


@pytest.mark.parametrize("kernel", [by_turns(3), by_turns(2), by_turns(8, moving=True)])
def test_tiles_that_meet_need_one(rng: Any, proved: Any, kernel: Any) -> None:
    args = [rng.standard_normal((8, 64)).astype("float32"), np.zeros((64, 8), "float32")]
    trace, _ = proved(kernel, args, passes=False)
    assert all_needed(trace.after("check_synchronization")) == barriers(trace) == 1


def copied(first: int, second: int, third: int) -> Any:
    """Eight elements from each of three places, in each of four iterations: copies of a statement, and what is made of one
    before the next one stands."""
    bx, tx, k, v, w = (tir.Var(name, "int32") for name in ("bx", "tx", "k", "v", "w"))
    A, zero = tir.decl_buffer((64,), "int32", "A"), tir.const(0, "int32")
    stores = [tir.BufferStore(A, zero, [at + tx]) for at in (v, w, v)]
    body = [
        *(tir.Bind(v, k * first), stores[0], tir.Bind(w, v // first * second)),
        *(tir.Bind(v, k * third), stores[1], stores[2]),
    ]
    loop = tir.For(k, zero, tir.const(4), tir.ForKind.SERIAL, tile_ir.sequence(body))
    return tile_ir.Kernel(0, ((bx, tir.const(4)),), ((tx, tir.const(8)),), loop, None)


def test_a_variable_that_copies_of_a_statement_bind_is_what_the_last_of_them_says() -> None:
    assert not written_again(copied(8, 16, 24)).tensors
    for steps in ((4, 8, 8), (8, 4, 8), (8, 8, 4)):
        assert written_again(copied(*steps)).tensors


@pytest.mark.parametrize(
    ("step", "by", "meet", "several"), [(8, 1, False, False), (7, 1, True, False), (8, 2, True, True)]
)
def test_iterations_of_an_independent_loop_are_proved_to_be_so(step: int, by: int, meet: bool, several: bool) -> None:
    """As tiles of blocks that stay. Between those that meet no barrier is put; the checker looks at them."""
    bx, tx, k = (tir.Var(name, "int32") for name in ("bx", "tx", "k"))
    A, zero = tir.decl_buffer((64,), "int32", "A"), tir.const(0, "int32")
    store = tir.BufferStore(A, zero, [(k * 5 + bx) % 8 * step + tx // by])
    notes = {tile_ir.INDEPENDENT: tile_ir.PROMISED}
    loop = tir.For(k, zero, tir.const(8), tir.ForKind.SERIAL, store, annotations=notes)
    kernel = tile_ir.Kernel(0, ((bx, tir.const(4)),), ((tx, tir.const(8)),), loop, None)
    found = written_again(kernel)
    assert not found.tensors
    assert bool(found.in_independent) == meet
    assert bool(found.in_one_statement) == several


#: What all threads have in common, by iteration, and what differs between them, in a dimension: for numbers and in the text.
COMMON: list[Callable[..., Any]] = [
    lambda k, pick: k * 0,
    lambda k, pick: k,
    lambda k, pick: k // 2,
    lambda k, pick: k * 3 % 8,
    lambda k, pick: pick(k % 2 == 0, k, 7 - k),
    lambda k, pick: 7 - k,
]
DIFFERS: list[Callable[..., Any]] = [
    lambda tx, k: tx // 8,
    lambda tx, k: tx % 8,
    lambda tx, k: tx // 16 * 2,
    lambda tx, k: tx % 8 * 2,
    lambda tx, k: 7 - tx // 8,
    lambda tx, k: (tx + k) % 8,
    lambda tx, k: tx * 0,
]


def test_what_is_not_looked_at_has_one_thread_for_each_element() -> None:
    """Random places in two dimensions, beside what every thread writes in every iteration."""
    rng = np.random.default_rng(0)
    bx, tx, k = (tir.Var(name, "int32") for name in ("bx", "tx", "k"))
    A, zero = tir.decl_buffer((256, 256), "int32", "A"), tir.const(0, "int32")
    kept = meeting = 0
    for _ in range(400):
        differs = rng.integers(len(DIFFERS), size=2) if rng.random() < 0.4 else (0, 1)
        parts = [(COMMON[rng.integers(len(COMMON))], DIFFERS[n]) for n in differs]
        steps = rng.choice([1, 4, 7, 8, 9, 15, 16], 2).tolist()
        place = [c(k, tir.if_then_else) * s + d(tx, k) for (c, d), s in zip(parts, steps)]
        loop = tir.For(k, zero, tir.const(8), tir.ForKind.SERIAL, tir.BufferStore(A, zero, place))
        kernel = tile_ir.Kernel(0, ((bx, tir.const(4)),), ((tx, tir.const(64)),), loop, None)
        turn, thread = (axis.ravel() for axis in np.meshgrid(np.arange(8), np.arange(64), indexing="ij"))
        element = [c(turn, np.where) * s + d(thread, turn) for (c, d), s in zip(parts, steps)]
        owner: dict[Any, set[int]] = {}
        for row, column, one in zip(*(np.broadcast_to(e, turn.shape).tolist() for e in element), thread.tolist()):
            owner.setdefault((row, column), set()).add(one)
        found = written_again(kernel)
        looked_at = A in found.tensors | found.in_one_statement
        meets = any(len(threads) > 1 for threads in owner.values())
        assert looked_at or not meets, (place, steps)
        kept += looked_at and not meets
        meeting += meets
    assert 100 < meeting < 300
    assert kept < (400 - meeting) // 2  # of what meets nothing, most is known to


def tiles_into(strides: tuple[Any, Any], step: int = 256) -> Any:
    """Tiles one after the other, as many as sizes say, at multiples of `step` columns; how far elements of B lie apart is the
    caller's."""

    @T.prim_func
    def main(A: T.Tensor((m, n), "float32"), B: T.StridedTensor((m, n), strides, "float32")):
        with T.Kernel(4, threads=128) as block:
            tile = T.alloc_shared((16, 256), "float32")
            for row, column in T.Persistent([T.ceildiv(m, 16), T.ceildiv(n, 256)], 4, block):
                T.copy(A[row * 16, column * 256], tile)
                T.copy(tile, B[row * 16, column * step])

    return main


@pytest.mark.parametrize("strides", [(pitch, 1), (1, pitch)], ids=["rows", "columns"])
def test_elements_of_a_tensor_lie_apart_whatever_sizes_are_looked_at(lower: Callable[..., Any], strides: Any) -> None:
    """`n` decides how many tiles there are, the pitch nothing: no walk takes a pitch that makes rows, or columns, meet."""
    lower(tiles_into(strides))


def test_tiles_that_meet_in_rows_of_any_pitch_are_a_race(lower: Callable[..., Any]) -> None:
    with pytest.raises(SharedMemoryRace, match="race on B"):
        lower(tiles_into((pitch, 1), 252))


@T.prim_func
def one_row_of_all(A: T.Tensor((m, n), "float32"), B: T.StridedTensor((m, n), (0, pitch), "float32")):
    with T.Kernel(1, threads=128):
        for row in T.serial(m):
            for j in T.Parallel(128):
                B[row, (j + row) % 128] = A[row, j]


def test_rows_that_a_stride_of_0_makes_one_are_one(lower: Callable[..., Any]) -> None:
    """Though the other stride is the caller's."""
    with pytest.raises(SharedMemoryRace, match="race on B"):
        lower(one_row_of_all)


@T.prim_func
def one_row_at_once(A: A64, B: T.StridedTensor((8, 64), (0, 1), "float32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        B[tx // 8, tx % 8] = A[tx // 8, tx % 8]


def test_threads_that_write_rows_that_are_one_are_a_race(lower: Callable[..., Any]) -> None:
    with pytest.raises(SharedMemoryRace, match="race on B"):
        lower(one_row_at_once)


def permuted(independent: bool) -> Any:
    @T.prim_func
    def main(A: A64, B: T.Tensor((8, 64), "float32")):
        with T.Kernel(1, threads=16):
            tx = T.get_thread_binding()
            for k in T.serial(8, independent=independent):
                B[k * 3 % 8, tx] = A[k, tx]
                B[k * 3 % 8, 63 - tx] = A[k, tx]

    return main


@pytest.mark.parametrize("independent", [False, True])
def test_a_promise_that_iterations_are_independent_is_taken_and_told(rng: Any, proved: Any, independent: bool) -> None:
    args = [rng.standard_normal((8, 64)).astype("float32"), np.zeros((8, 64), "float32")]
    trace, ctx = proved(permuted(independent), args, passes=False)
    assert any("independent=True" in text for text in ctx.report.assumed) == independent


@T.prim_func
def one_element_of_all(A: A64, B: T.Tensor((8, 64), "float32")):
    with T.Kernel(1, threads=64):
        B[0, 0] = A[0, T.get_thread_binding()]


@T.prim_func
def halved(A: A64, B: T.Tensor((8, 64), "float32")):
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        B[tx // 16, tx % 16 // 2] = A[0, tx]


@pytest.mark.parametrize("kernel", [one_element_of_all, halved])
def test_threads_that_write_one_element_in_one_statement_are_a_race(lower: Callable[..., Any], kernel: Any) -> None:
    with pytest.raises(SharedMemoryRace, match="race on B"):
        lower(kernel)


def test_a_variable_that_copies_of_a_statement_bind_to_something_else_is_not_common() -> None:
    """Nor is what is made of it, or what memory says in each."""
    tx, bx, v, w, x = (tir.Var(name, "int32") for name in ("tx", "bx", "v", "w", "x"))
    A = tir.decl_buffer((8,), "int32", "A")
    copies = [s for n in (2, 3) for s in (tir.Bind(v, bx * n), tir.Bind(w, v + 1), tir.Bind(x, A[n]))]
    kernel = tile_ir.Kernel(0, ((bx, tir.const(4)),), ((tx, tir.const(64)),), tile_ir.sequence(copies), None)
    names = Names(kernel, Uniformity(kernel))
    for index in (v, w, x):
        place = names.resolved((index,))
        one = Effect("write", A, None, 1, place=place)
        other = Effect("write", A, None, 1, place=(place[0] + 1,))
        assert not beside(one, other, {}, names)
