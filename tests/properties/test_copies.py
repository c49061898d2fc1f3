"""Random copies: shapes, offsets (also beyond the edges), steps, scopes and conversions on the way."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from everywhere import agree, cast, from_storage, random_values, to_storage
from hypothesis import given
from hypothesis import strategies as st

import tilelang.language as T

SCOPES = ("shared.dyn", "shared", "local.fragment")
TYPES = (
    "float32",
    "float16",
    "bfloat16",
    "int8",
    "uint8",
    "int32",
    "int64",
    "float64",
    "float8_e4m3fn",
    "bool",
    "int4",
    "uint4",
)
SMALL = ("int4", "uint4")


def extents(rank: int, largest: int = 9) -> st.SearchStrategy[tuple[int, ...]]:
    """Shapes whose last extent is even, so that packed types fill their bytes."""
    rest = [st.integers(1, largest) for _ in range(rank - 1)]
    return st.tuples(*rest, st.integers(1, 8).map(lambda n: 2 * n))


def window(values: Any, origin: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """The part of an array from `origin` on; zero outside of the array."""
    result = np.zeros(shape, values.dtype)
    inside = np.ones(shape, bool)
    places = np.indices(shape)
    for d, first in enumerate(origin):
        places[d] += first
        inside &= (places[d] >= 0) & (places[d] < values.shape[d])
    result[inside] = values[tuple(p[inside] for p in places)]
    return result


def put(target: Any, origin: tuple[int, ...], values: Any) -> Any:
    """A copy of `target` with `values` written from `origin` on, as far as they lie inside."""
    result = target.copy()
    for index, x in np.ndenumerate(values):
        place = tuple(o + i for o, i in zip(origin, index))
        if all(0 <= p < n for p, n in zip(place, target.shape)):
            result[place] = x
    return result


@st.composite
def windows(draw: Any) -> Any:
    rank = draw(st.integers(1, 3))
    source, target, tile = draw(extents(rank, 12)), draw(extents(rank, 12)), draw(extents(rank))
    # What is not there reads as 0, and is not written. Only at run time may an origin itself lie outside.
    runtime = draw(st.booleans())
    lowest, beyond = (-4, 1) if runtime else (0, -1)
    reads = tuple(draw(st.integers(lowest, n + beyond)) for n in source)
    writes = tuple(draw(st.integers(lowest, n + beyond)) for n in target)
    kinds = tuple(draw(st.sampled_from(TYPES)) for _ in range(4))
    scopes = tuple(draw(st.sampled_from(SCOPES)) for _ in range(2))
    return source, target, tile, reads, writes, runtime, kinds, scopes, draw(st.booleans()), draw(st.integers(0, 99))


@given(windows())
def test_windows(program):
    """global -> tile -> tile of another type -> global, by origins or by regions."""
    source, target, tile, reads, writes, runtime, kinds, scopes, regions, seed = program
    rank = len(tile)
    padding = (0,) * (3 - rank)

    def place(buffer, origin):
        if regions:
            return buffer[tuple(slice(o, o + n) for o, n in zip(origin, tile))]
        return buffer[tuple(origin)]

    @T.prim_func
    def main(
        A: T.Tensor(source, kinds[0]),
        r0: T.int32,
        r1: T.int32,
        r2: T.int32,
        w0: T.int32,
        w1: T.int32,
        w2: T.int32,
        B: T.Tensor(target, kinds[3]),
    ):
        with T.Kernel(1, threads=32):
            first = T.alloc_buffer(tile, kinds[1], scope=scopes[0])
            second = T.alloc_buffer(tile, kinds[2], scope=scopes[1])
            T.copy(place(A, [r0, r1, r2][:rank] if runtime else reads), first)
            T.copy(first, second)
            T.copy(second, place(B, [w0, w1, w2][:rank] if runtime else writes))

    a, b = random_values(source, kinds[0], seed, small=True), random_values(target, kinds[3], seed + 1, small=True)
    moved = window(a, reads, tile)
    for before, after in pairwise(kinds):
        moved = cast(moved, before, after)
    want = put(b, writes, moved)
    scalars = [*reads, *padding, *writes, *padding]
    arguments = [to_storage(a, kinds[0]), *scalars, to_storage(b, kinds[3])]
    agree(main, arguments, [None] * 7 + [to_storage(want, kinds[3])])


@st.composite
def slices(draw: Any) -> Any:
    """A source of rank 2 to 4, some dimensions of which are indexed by numbers, the others by slices with steps."""
    rank = draw(st.integers(2, 4))
    shape = draw(extents(rank))
    index: list[Any] = []
    for n in shape:
        if draw(st.integers(0, 3)) == 0:
            index.append(draw(st.integers(-n, n - 1)))
        else:
            start = draw(st.integers(0, n - 1))
            index.append(slice(start, draw(st.integers(start + 1, n)), draw(st.sampled_from([1, 1, 2, 3]))))
    kinds = draw(
        st.sampled_from([("float32", "float32"), ("float32", "float16"), ("int8", "int32"), ("uint4", "int8")])
    )
    return shape, tuple(index), kinds, draw(st.sampled_from([*SCOPES, "global"])), draw(st.integers(0, 99))


@given(slices())
def test_slices(program):
    """Numbers drop dimensions, slices step: as numpy indexes, into a tile of the resulting shape and back."""
    shape, index, kinds, scope, seed = program
    a = random_values(shape, kinds[0], seed, small=True)
    picked = cast(a[index], *kinds)
    result = picked.shape or (1,)

    @T.prim_func
    def main(A: T.Tensor(shape, kinds[0]), B: T.Tensor(result, kinds[1]), C: T.Tensor(shape, kinds[1])):
        with T.Kernel(1, threads=32):
            if scope == "global":
                T.copy(A[index], B)
            else:
                tile = T.alloc_buffer(result, kinds[1], scope=scope)
                T.copy(A[index], tile)
                T.copy(tile, B)
                T.copy(tile, C[index])

    b, c = random_values(result, kinds[1], seed + 1), random_values(shape, kinds[1], seed + 2)
    changed = c.copy()
    if scope != "global":
        changed[index] = picked.reshape(changed[index].shape)
    agree(main, [to_storage(a, kinds[0]), b, c], [None, picked.reshape(result), changed])


@st.composite
def grids(draw: Any) -> Any:
    shape, block = (
        (draw(st.integers(1, 70)), draw(st.integers(1, 70))),
        (draw(st.integers(1, 32)), draw(st.integers(1, 32))),
    )
    return (
        shape,
        block,
        draw(st.sampled_from(["float32", "float16", "int8"])),
        draw(st.booleans()),
        draw(st.integers(0, 99)),
    )


@given(grids())
def test_tiles_of_a_matrix(program):
    """A matrix of any shape, tile by tile over a grid, with static or dynamic extents, transposed on the way."""
    (rows, columns), (block_rows, block_columns), dtype, dynamic, seed = program
    m, n = (T.dynamic("m"), T.dynamic("n")) if dynamic else (rows, columns)

    @T.prim_func
    def main(A: T.Tensor((m, n), dtype), B: T.Tensor((n, m), dtype)):
        with T.Kernel(T.ceildiv(n, block_columns), T.ceildiv(m, block_rows), threads=64) as (bx, by):
            tile = T.alloc_shared((block_rows, block_columns), dtype)
            turned = T.alloc_fragment((block_columns, block_rows), dtype)
            T.copy(A[by * block_rows, bx * block_columns], tile)
            for i, j in T.Parallel(block_rows, block_columns):
                turned[j, i] = tile[i, j]
            T.copy(turned, B[bx * block_columns, by * block_rows])

    a = random_values((rows, columns), dtype, seed)
    agree(main, [a, np.zeros((columns, rows), a.dtype)], [None, a.T])


@given(extents(2), st.sampled_from(TYPES), st.integers(0, 99))
def test_views(shape, dtype, seed):
    """The same storage with another shape: reshape, and back through a view of bytes where elements are bytes."""
    count = shape[0] * shape[1]

    @T.prim_func
    def main(A: T.Tensor(shape, dtype), B: T.Tensor((count,), dtype)):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared(shape, dtype)
            T.copy(A, tile)
            flat = T.reshape(tile, (count,))
            T.copy(T.view(flat, (1, count), dtype), B)

    a = random_values(shape, dtype, seed)
    stored = to_storage(a, dtype)
    want = to_storage(from_storage(stored, dtype).reshape(count), dtype)
    agree(main, [stored, np.zeros_like(want)], [None, want])
