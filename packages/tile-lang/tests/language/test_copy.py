"""T.copy, T.fill, T.clear: buffers, regions and origins, casts, edges (surface.md, section c)."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilelang.language as T
from tilelang.errors import CopyShapeMismatch
from tilelang.interpreter import run

A64 = np.arange(64, dtype=np.int32).reshape(8, 8)


def through(shape, tile_shape, load, dtype="int32", fill=-1):
    """A -> tile by `load(A, tile)` -> the tile as an array."""

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype), B: T.Tensor(tile_shape, dtype)):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared(tile_shape, dtype)
            T.fill(tile, fill)
            load(A, tile)
            T.copy(tile, B)

    a = np.arange(np.prod(shape)).reshape(shape).astype(T.dtype(dtype).as_numpy())
    b = np.zeros(tile_shape, a.dtype)
    run(kernel, [a, b])
    return a, b


def test_origin_takes_the_other_sides_extents():
    a, b = through((8, 8), (3, 4), lambda A, tile: T.copy(A[2, 1], tile))
    np.testing.assert_array_equal(b, a[2:5, 1:5])


def test_origin_of_higher_rank_is_aligned_at_the_last_dimensions():
    a, b = through((4, 8, 8), (3, 4), lambda A, tile: T.copy(A[2, 1, 3], tile))
    np.testing.assert_array_equal(b, a[2, 1:4, 3:7])


def test_region_matches_when_extents_of_one_are_dropped():
    a, b = through((2, 8, 3, 4), (5, 4), lambda A, tile: T.copy(A[1, 2:7, 2, :], tile))
    np.testing.assert_array_equal(b, a[1, 2:7, 2, :])
    a, b = through((8, 8), (1, 4, 1, 2), lambda A, tile: T.copy(A[4:8, 2:4], tile))
    np.testing.assert_array_equal(b[0, :, 0], a[4:8, 2:4])


def test_too_few_indices_leave_the_rest_whole():
    a, b = through((4, 8, 8), (8, 8), lambda A, tile: T.copy(A[2], tile))
    np.testing.assert_array_equal(b, a[2])
    a, b = through((8, 8), (8, 8), lambda A, tile: T.copy(A[...], tile))
    np.testing.assert_array_equal(b, a)


def test_store_to_an_origin():
    @T.prim_func
    def kernel(A: T.Tensor((8, 8), "int32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_fragment((2, 3), "int32")
            T.fill(tile, 7)
            T.copy(tile, A[5, 4])

    a = A64.copy()
    run(kernel, [a])
    expected = A64.copy()
    expected[5:7, 4:7] = 7
    np.testing.assert_array_equal(a, expected)


def test_an_extent_of_one_takes_the_other_sides():
    a, b = through((8, 8), (4, 8), lambda A, tile: T.copy(A[2:3, :], tile[0:1, :]))
    np.testing.assert_array_equal(b[0], a[2])
    assert (b[1:] == -1).all()


def test_two_origins_move_one_element():
    @T.prim_func
    def kernel(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float16")):
        with T.Kernel(1, threads=8):
            T.copy(A[3], B[5])

    a, b = np.arange(8, dtype=np.float32) + 0.1, np.zeros(8, np.float16)
    run(kernel, [a, b])
    np.testing.assert_array_equal(b, [0, 0, 0, 0, 0, np.float16(3.1), 0, 0])


def test_whole_buffers_of_different_shapes_are_an_error():
    with pytest.raises(CopyShapeMismatch, match="T.copy of A to tile: the shapes differ"):
        through((8, 8), (8, 4), lambda A, tile: T.copy(A, tile))


@pytest.mark.parametrize(
    "load",
    [
        lambda A, tile: T.copy(A[0:3, 0:4], tile),
        lambda A, tile: T.copy(A[0:4, 0:2], tile),
        lambda A, tile: T.copy(A, tile[0:2, :]),
    ],
)
def test_extents_that_cannot_match_are_an_error(load):
    with pytest.raises(CopyShapeMismatch, match="extents cannot match"):
        through((8, 8), (2, 4), load)


@given(st.integers(-4, 10), st.integers(-4, 10), st.integers(1, 6), st.integers(1, 6))
def test_elements_outside_read_zero_and_are_not_written(row, column, m, n):
    @T.prim_func
    def kernel(r: T.int32, c: T.int32, A: T.Tensor((8, 8), "int32"), B: T.Tensor((m, n), "int32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((m, n), "int32")
            T.copy(A[r, c], tile)
            T.copy(tile, B)
            T.fill(tile, -5)
            T.copy(tile, A[r, c])

    a, b = A64 + 1, np.full((m, n), -1, np.int32)
    padded = np.zeros((32, 32), np.int32)
    padded[8:16, 8:16] = a
    expected = padded[8 + row : 8 + row + m, 8 + column : 8 + column + n].copy()
    run(kernel, [row, column, a, b])
    np.testing.assert_array_equal(b, expected)
    padded[8 + row : 8 + row + m, 8 + column : 8 + column + n] = -5
    np.testing.assert_array_equal(a, padded[8:16, 8:16])


def test_safe_value_replaces_zero():
    @T.prim_func
    def kernel(A: T.Tensor((6,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            T.annotate_safe_value({A: -1.5})
            tile = T.alloc_shared((8,), "float32")
            T.copy(A[0], tile)
            T.copy(tile, B)

    b = np.zeros(8, np.float32)
    run(kernel, [np.ones(6, np.float32), b])
    np.testing.assert_array_equal(b, [1] * 6 + [-1.5] * 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3", "int8", "int32", "float64", "bool"])
def test_copy_converts_the_element_type(dtype):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), dtype)):
        with T.Kernel(1, threads=8):
            T.copy(A, B)

    kind = T.dtype(dtype).as_numpy()
    a = np.array([0, 1, -1, 2.5, -2.5, 100.3, 0.1, 3], np.float32)
    b = np.zeros(8, kind)
    run(kernel, [a, b])
    np.testing.assert_array_equal(b, a.astype(kind))


SCOPES = {
    "global": None,
    "shared": T.alloc_shared,
    "fragment": T.alloc_fragment,
}


@pytest.mark.parametrize("source", SCOPES)
@pytest.mark.parametrize("target", SCOPES)
def test_copy_between_any_two_levels(source, target):
    @T.prim_func
    def kernel(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4, 8), "float32")):
        with T.Kernel(1, threads=8):
            if SCOPES[source] is None and SCOPES[target] is None:
                T.copy(A, B)
            elif SCOPES[source] is None:
                t = SCOPES[target]((4, 8), "float32")
                T.copy(A, t)
                T.copy(t, B)
            elif SCOPES[target] is None:
                s = SCOPES[source]((4, 8), "float32")
                T.copy(A, s)
                T.copy(s, B)
            else:
                s = SCOPES[source]((4, 8), "float32")
                t = SCOPES[target]((4, 8), "float32")
                T.copy(A, s)
                T.copy(s, t)
                T.copy(t, B)

    a, b = np.random.default_rng(0).random((4, 8), np.float32), np.zeros((4, 8), np.float32)
    run(kernel, [a, b])
    np.testing.assert_array_equal(a, b)


def test_copy_of_dynamic_rows():
    m = T.dynamic("m")

    @T.prim_func
    def kernel(A: T.Tensor((m, 8), "float32"), B: T.Tensor((m, 8), "float32")):
        with T.Kernel(T.ceildiv(m, 4), threads=8) as bx:
            tile = T.alloc_shared((4, 8), "float32")
            T.copy(A[bx * 4 : (bx + 1) * 4, :], tile)
            T.copy(tile, B[bx * 4, 0])

    for rows in (1, 4, 7, 0):
        a = np.random.default_rng(rows).random((rows, 8), np.float32)
        b = np.full_like(a, -1)
        run(kernel, [a, b])
        np.testing.assert_array_equal(a, b)


def test_fill_and_clear_of_buffers_regions_and_elements():
    @T.prim_func
    def kernel(A: T.Tensor((4, 4), "float16")):
        with T.Kernel(1, threads=8):
            T.fill(A, 1.5)
            T.clear(A[1, :])
            T.fill(A[2:4, 2:4], -T.infinity("float16"))
            T.fill(A[0, 0], 9)

    a = np.zeros((4, 4), np.float16)
    run(kernel, [a])
    expected = np.full((4, 4), 1.5, np.float16)
    expected[1] = 0
    expected[2:, 2:] = -np.inf
    expected[0, 0] = 9
    np.testing.assert_array_equal(a, expected)


def test_scheduling_keywords_change_nothing():
    a, b = through(
        (8, 8),
        (8, 8),
        lambda A, tile: T.copy(
            A, tile, coalesced_width=4, disable_tma=True, eviction_policy="evict_last", annotations={"x": 1}
        ),
    )
    np.testing.assert_array_equal(a, b)


def test_packed_types_keep_their_logical_shape():
    @T.prim_func
    def kernel(A: T.Tensor((2, 8), "int4"), B: T.Tensor((2, 8), "int8"), C: T.Tensor((2, 8), "int4")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_fragment((2, 8), "int8")
            T.copy(A, tile)
            T.copy(tile, B)
            for i, j in T.Parallel(2, 8):
                tile[i, j] = tile[i, j] + 1
            T.copy(tile, C)

    values = np.array([[-8, -7, -1, 0, 1, 2, 6, 7], [7, 6, 5, 4, 3, 2, 1, 0]], np.int8)
    packed = ((values[:, 0::2] & 15) | ((values[:, 1::2] & 15) << 4)).astype(np.uint8)
    b, c = np.zeros((2, 8), np.int8), np.zeros((2, 4), np.uint8)
    run(kernel, [packed, b, c])
    np.testing.assert_array_equal(b, values)
    low, high = (c.astype(np.int8) << 4) >> 4, c.astype(np.int8) >> 4
    unpacked = np.stack([low, high], -1).reshape(2, 8)
    np.testing.assert_array_equal(unpacked, ((values + 1 + 8) % 16 - 8))


def test_float4_elements():
    values = np.array([0.5, -0.5, 1, 1.5, 2, 3, 4, -6], np.float32)

    @T.prim_func
    def kernel(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float4_e2m1"), C: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            T.copy(A, B)
            T.copy(B, C)

    b, c = np.zeros(4, np.uint8), np.zeros(8, np.float32)
    run(kernel, [values, b, c])
    codes = values.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    np.testing.assert_array_equal(b, codes[0::2] | (codes[1::2] << 4))
    np.testing.assert_array_equal(c, values)
