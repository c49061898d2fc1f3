"""The sizes that the checker looks at: only those that calls have, and among them one for each decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilelang.language as T
from tile_compiler.simt.errors import SharedMemoryRace
from tile_compiler.simt.scenarios import scenarios
from tile_compiler.variants import WHOLE_TILES, assumptions
from tilelang.ir import tile_ir

m = T.dynamic("m")


def two_rows(size: int, promised: bool = False) -> Any:
    """A block writes its part of two rows, one behind the other."""

    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), Rows: T.Tensor((2, m, 1), "float32")):
        with T.Kernel(T.ceildiv(m, size), threads=size) as block:
            if promised:
                T.assume(m % size == 0)
            at = block * size + T.get_thread_binding()
            Rows[0, at, 0] = A[at]
            Rows[1, at, 0] = A[at]

    return main


def two_rows_in_turns(size: int) -> Any:
    """A block writes two rows, a part of both in each turn."""

    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), Rows: T.Tensor((2, m, 1), "float32")):
        with T.Kernel(1, threads=size):
            for k in T.serial(T.ceildiv(m, size)):
                at = k * size + T.get_thread_binding()
                Rows[0, at, 0] = A[at]
                Rows[1, at, 0] = A[at]

    return main


def one_element(size: int, promised: bool = False) -> Any:
    """Threads meet near the end of a block's part."""

    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), Row: T.Tensor((m,), "float32")):
        with T.Kernel(T.ceildiv(m, size), threads=size) as block:
            if promised:
                T.assume(m % size == 0)
            tx = T.get_thread_binding()
            Row[block * size + T.max(tx, size - 6)] = A[block * size + tx]

    return main


def whole_tiles(func: Any) -> Any:
    return assumptions(func, WHOLE_TILES).apply(func)


@pytest.mark.parametrize(
    "func",
    [two_rows(256, promised=True), whole_tiles(two_rows(256)), whole_tiles(two_rows_in_turns(256))],
    ids=["promised", "variant", "turns"],
)
def test_rows_of_whole_tiles_lie_apart(lower: Callable[..., Any], func: Any) -> None:
    """No predicate says where a row ends: one that ended inside a tile would reach into the next row."""
    text = str(lower(func)[0].after("check_synchronization"))
    assert " < m" not in text
    assert "sync_threads" not in text


@pytest.mark.parametrize(
    "func", [one_element(256, promised=True), whole_tiles(one_element(256))], ids=["promised", "variant"]
)
def test_threads_that_meet_at_the_end_of_a_whole_tile_are_a_race(lower: Callable[..., Any], func: Any) -> None:
    """A row that ended inside the tile would not show it."""
    with pytest.raises(SharedMemoryRace, match="race on Row"):
        lower(func)


@T.prim_func
def parts(A: T.Tensor((m,), "float32"), B: T.Tensor((2, 64), "float32")):
    with T.Kernel(1, threads=64):
        for k in T.serial(T.ceildiv(m, 64)):
            B[k % 2, T.get_thread_binding()] = A[k * 64 + T.get_thread_binding()]


@pytest.mark.parametrize("multiple", [1, 7, 16, 96, 1024])
def test_multiples_lead_to_every_number_of_turns_that_a_call_has(lower: Callable[..., Any], multiple: int) -> None:
    func = lower(parts)[0].after("check_synchronization")
    (kernel,) = tile_ir.kernels(func)
    size = func.params[0].ty.shape[0]
    chosen, complete = scenarios(func, kernel, {func.params[1]}, {size: multiple})
    sizes = [int(values[size][0]) for values in chosen]
    assert complete
    assert all(one % multiple == 0 for one in sizes)
    many = 6  # from here on, numbers count as equal
    assert {min(-(-n // 64), many) for n in sizes} == {min(-(-n // 64), many) for n in range(0, 8192, multiple)}


@pytest.mark.parametrize("multiple", [1, 7, 64, 1024])
def test_a_size_that_decides_nothing_is_a_multiple(lower: Callable[..., Any], multiple: int) -> None:
    func = lower(two_rows(64))[0].after("check_synchronization")
    (kernel,) = tile_ir.kernels(func)
    size = func.params[0].ty.shape[0]
    ((values,), _) = scenarios(func, kernel, set(), {size: multiple})
    assert int(values[size][0]) > 64
    assert int(values[size][0]) % multiple == 0


def only_where(*conditions: Callable[[Any], Any]) -> Any:
    """All threads write one element, of a tensor for each condition on the size."""

    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), B: T.Tensor((2, 1), "float32"), C: T.Tensor((2, 1), "float32")):
        with T.Kernel(1, threads=256):
            tx = T.get_thread_binding()
            if conditions[0](m):
                B[tx // 128, 0] = A[tx]
            if conditions[-1](m):
                C[tx // 128, 0] = A[tx]

    return main


@pytest.mark.parametrize(
    "conditions",
    [[lambda m: m < 100], [lambda m: m == 6], [lambda m: m < 0, lambda m: m < 3]],
    ids=["few", "one", "second"],
)
def test_a_size_that_decides_about_stores_to_tensors_is_looked_at_where_they_are_made(
    lower: Callable[..., Any], conditions: Any
) -> None:
    with pytest.raises(SharedMemoryRace, match="race on [BC]"):
        lower(only_where(*conditions))


def test_a_size_that_decides_where_a_thread_writes_is_looked_at(lower: Callable[..., Any]) -> None:
    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), B: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((256,), "float32")
            at = T.alloc_local((1,), "int32")
            at[0] = T.get_thread_binding()
            if m < 100:
                at[0] = 0
            S[at[0]] = A[T.get_thread_binding()]
            T.sync_threads()
            B[T.get_thread_binding()] = S[T.get_thread_binding()]

    with pytest.raises(SharedMemoryRace, match="race on S"):
        lower(main)


def test_walks_are_those_in_which_most_is_done(lower: Callable[..., Any]) -> None:
    """A condition under which there are more accesses needs no walk in which it does not hold."""

    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), B: T.Tensor((256,), "float32"), C: T.Tensor((256,), "float32")):
        with T.Kernel(1, threads=256):
            S = T.alloc_shared((256,), "float32")
            tx = T.get_thread_binding()
            if m > 1:
                S[tx] = A[tx]
            T.sync_threads()
            if m > 3:
                B[tx] = S[tx]
            if m < 3:
                C[tx] = S[tx]

    func = lower(main)[0].after("check_synchronization")
    (kernel,) = tile_ir.kernels(func)
    size = func.params[0].ty.shape[0]
    chosen, complete = scenarios(func, kernel, set(func.params[1:]), {})
    assert complete
    first, second = sorted(int(values[size][0]) for values in chosen)
    assert first == 2
    assert second > 3


@pytest.mark.parametrize("least", [300, 5000, 1_000_000])
def test_a_size_is_looked_at_where_a_condition_changes(lower: Callable[..., Any], least: int) -> None:
    with pytest.raises(SharedMemoryRace, match="race on B"):
        lower(only_where(lambda m: m > least))


@pytest.mark.parametrize("width", [48, 80, 96, 1000])
def test_every_number_of_turns_is_looked_at_whatever_their_width(lower: Callable[..., Any], width: int) -> None:
    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.Kernel(1, threads=64):
            for k in T.serial(T.ceildiv(m, width)):
                B[k % 2, T.get_thread_binding()] = A[k * width + T.get_thread_binding()]

    func = lower(main)[0].after("check_synchronization")
    (kernel,) = tile_ir.kernels(func)
    size = func.params[0].ty.shape[0]
    chosen, _ = scenarios(func, kernel, {func.params[1]}, {})
    assert {min(-(-int(values[size][0]) // width), 6) for values in chosen} == set(range(7))


def test_blocks_of_a_grid_that_only_large_sizes_have_are_looked_at(lower: Callable[..., Any]) -> None:
    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), B: T.Tensor((1, 1), "float32")):
        with T.Kernel(m // 5000, threads=64) as block:
            if block == 1:
                B[0, 0] = A[T.get_thread_binding()]

    with pytest.raises(SharedMemoryRace, match="race on B"):
        lower(main)


def stores(place: Callable[[Any], Any], condition: Callable[[Any], Any] | None = None, threads: int = 256) -> Any:
    """Each thread stores at a place that a size may have a part in."""

    @T.prim_func
    def main(A: T.Tensor((threads,), "float32"), B: T.Tensor((m,), "float32")):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            if condition is None:
                B[place(tx)] = A[tx]
            elif condition(tx):
                B[place(tx)] = A[tx]

    return main


@pytest.mark.parametrize(
    "func",
    [
        stores(lambda tx: T.max(tx, 250)),
        stores(lambda tx: T.max(tx, 250) + 5000),
        stores(lambda tx: T.min(tx, m - 1)),
        stores(lambda tx: T.min(tx, m - 1), threads=64),
        stores(lambda tx: tx % m, threads=64),
        stores(lambda tx: T.if_then_else(tx < m - 3, tx, 0), threads=64),
        stores(lambda tx: tx // 2, lambda tx: tx >= m, threads=64),
        stores(lambda tx: tx // 2, lambda tx: tx + 600 < m, threads=64),
    ],
    ids=["whole", "far", "cut", "little cut", "divided", "chosen", "behind", "before"],
)
def test_stores_are_looked_at_in_whole_tiles_and_in_those_that_a_size_cuts(
    lower: Callable[..., Any], func: Any
) -> None:
    """The predicate that keeps them in bounds holds for all threads, unless the size says more."""
    with pytest.raises(SharedMemoryRace, match="race on B"):
        lower(func)


def test_sizes_that_lie_between_the_places_of_threads_are_also_small(lower: Callable[..., Any]) -> None:
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            B[tx] = A[tx]
            B[tx + m] = A[tx]

    func = lower(main)[0].after("check_synchronization")
    (kernel,) = tile_ir.kernels(func)
    size, room = (param.ty.shape[0] for param in func.params[:2])
    chosen, complete = scenarios(func, kernel, {func.params[1]}, {})
    assert complete
    assert {int(values[size][0]) < 64 for values in chosen} == {False, True}
    assert all(values[room][0] >= values[size][0] + 64 for values in chosen)


def test_a_tile_at_the_end_is_looked_at_as_a_whole(lower: Callable[..., Any]) -> None:
    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), B: T.Tensor((m,), "float32")):
        with T.Kernel(1, threads=64):
            tx = T.get_thread_binding()
            for k in T.serial(T.ceildiv(m, 64)):
                if k == T.ceildiv(m, 64) - 1:
                    B[k * 64 + T.max(tx, 60)] = A[k * 64 + tx]

    with pytest.raises(SharedMemoryRace, match="race on B"):
        lower(main)


def test_a_condition_on_threads_with_two_ways_is_looked_at_where_each_is_taken(lower: Callable[..., Any]) -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32"), C: T.Tensor((m,), "float32")):
        with T.Kernel(1, threads=64):
            S = T.alloc_shared((64,), "float32")
            tx = T.get_thread_binding()
            if tx < m:
                S[tx] = A[tx]
            else:
                S[tx // 2] = A[tx]
            T.sync_threads()
            B[tx] = S[tx]

    with pytest.raises(SharedMemoryRace, match="race on S"):
        lower(main)


@pytest.mark.parametrize("threads", [64, 256])
def test_a_barrier_that_a_size_keeps_threads_from_is_an_error(lower: Callable[..., Any], threads: int) -> None:
    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), B: T.Tensor((m,), "float32")):
        with T.Kernel(1, threads=threads):
            tx = T.get_thread_binding()
            if tx < m:
                T.sync_threads()
            B[tx] = A[tx]

    with pytest.raises(SharedMemoryRace, match="a barrier that not every thread reaches"):
        lower(main)


def only_where_assumed(assume: Callable[[Any], Any], condition: Callable[[Any], Any]) -> Any:
    """All threads write one element if a condition holds of a size of which another one is assumed."""

    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), B: T.Tensor((1, 1), "float32")):
        with T.Kernel(1, threads=64):
            T.assume(assume(m))
            if condition(m):
                B[0, 0] = A[T.get_thread_binding()]

    return main


ASSUMED = {
    "least": (lambda m: m >= 256, lambda m: m < 256),
    "most": (lambda m: m < 100, lambda m: m >= 100),
    "between": (lambda m: (m > 300) & (m <= 5000), lambda m: (m < 301) | (m > 5000)),
    "one": (lambda m: m == 77, lambda m: (m < 77) | (m > 77)),
    "scaled": (lambda m: m * 2 >= 500, lambda m: m < 250),
}


@pytest.mark.parametrize("name", ASSUMED)
def test_sizes_that_no_call_has_are_not_looked_at(lower: Callable[..., Any], name: str) -> None:
    assume, excluded = ASSUMED[name]
    lower(only_where_assumed(assume, excluded))


@pytest.mark.parametrize(
    ("assume", "condition"),
    [
        (lambda m: m >= 256, lambda m: m == 256),
        (lambda m: (m > 300) & (m <= 5000), lambda m: m > 4999),
        (lambda m: m == 77, lambda m: m > 76),
        (lambda m: m < 0, lambda m: m > 5),  # nothing is as assumed: then nothing is left out
        (lambda m: m % 7 == 3, lambda m: m > 5000),  # of this it says nothing
    ],
    ids=["least", "most", "one", "none", "remainder"],
)
def test_sizes_that_calls_have_are_looked_at_where_others_are_excluded(
    lower: Callable[..., Any], assume: Any, condition: Any
) -> None:
    with pytest.raises(SharedMemoryRace, match="race on B"):
        lower(only_where_assumed(assume, condition))


def test_sizes_are_compared_as_is_assumed(lower: Callable[..., Any]) -> None:
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((1, 1), "float32")):
        with T.Kernel(1, threads=64):
            T.assume(m <= n)
            if m > n:
                C[0, 0] = A[T.get_thread_binding()]

    lower(main)


def test_a_size_that_decides_nothing_is_as_assumed(lower: Callable[..., Any]) -> None:
    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.Kernel(1, threads=64):
            T.assume(m < 64)
            B[0, T.get_thread_binding()] = A[T.get_thread_binding()]

    trace, ctx = lower(main)
    func = trace.after("check_synchronization")
    (kernel,) = tile_ir.kernels(func)
    ((values,), complete) = scenarios(func, kernel, {func.params[1]}, {}, ctx.bounds[kernel.index])
    assert complete
    assert values[func.params[0].ty.shape[0]] == 63
