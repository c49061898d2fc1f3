"""Subscripts: elements, regions, steps, negative indices, ellipsis, missing and surplus indices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilelang.language as T
from tilelang.errors import DtypeError, IndexOutOfRange, InvalidArgument


def copied(interpret, shape, index, result_shape, scope="shared"):
    """T.copy(A[index], tile) and back out."""

    @T.prim_func
    def kernel(A: T.Tensor(shape, "int32"), B: T.Tensor(result_shape, "int32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared(result_shape, "int32")
            T.copy(index(A), tile)
            T.copy(tile, B)

    a = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    return a, interpret(kernel, a, np.full(result_shape, -1, np.int32))


REGIONS = [
    (lambda A: A[2:6, 1:5], np.s_[2:6, 1:5]),
    (lambda A: A[:4, 4:], np.s_[:4, 4:]),
    (lambda A: A[3], np.s_[3]),
    (lambda A: A[3, :], np.s_[3, :]),
    (lambda A: A[:, 2], np.s_[:, 2]),
    (lambda A: A[...], np.s_[...]),
    (lambda A: A[..., 1:3], np.s_[..., 1:3]),
    (lambda A: A[1, ...], np.s_[1, ...]),
    (lambda A: A[-2], np.s_[-2]),
    (lambda A: A[-3:, :-2], np.s_[-3:, :-2]),
    (lambda A: A[0:8:2, :], np.s_[0:8:2, :]),
    (lambda A: A[1::3, ::4], np.s_[1::3, ::4]),
    (lambda A: A[2:7:2, 1], np.s_[2:7:2, 1]),
]


@pytest.mark.parametrize(("index", "numpy_index"), REGIONS, ids=[str(n) for _, n in REGIONS])
def test_regions_mean_what_they_mean_in_numpy(interpret, index, numpy_index):
    shape = np.empty((8, 8))[numpy_index].shape
    a, result = copied(interpret, (8, 8), index, shape)
    np.testing.assert_array_equal(result, a[numpy_index])


def test_regions_of_three_dimensions(interpret):
    a, result = copied(interpret, (4, 8, 6), lambda A: A[2, ..., 3], (8,))
    np.testing.assert_array_equal(result, a[2, :, 3])
    a, result = copied(interpret, (4, 8, 6), lambda A: A[1], (8, 6))
    np.testing.assert_array_equal(result, a[1])
    a, result = copied(interpret, (4, 8, 6), lambda A: A[-1, 2:4], (2, 6))
    np.testing.assert_array_equal(result, a[-1, 2:4])


def test_region_of_a_region(interpret):
    a, result = copied(interpret, (8, 8), lambda A: A[2:8][1:3][:, 4:6], (2, 2))
    np.testing.assert_array_equal(result, a[3:5, 4:6])


@given(st.integers(-8, 7), st.integers(-8, 7))
def test_constant_indices_of_elements_count_from_the_end_when_negative(i, j):
    from tilelang.interpreter import run

    @T.prim_func
    def kernel(A: T.Tensor((8, 8), "int32"), B: T.Tensor((1,), "int32")):
        with T.Kernel(1):
            B[0] = A[i, j]

    a, b = np.arange(64, dtype=np.int32).reshape(8, 8), np.zeros(1, np.int32)
    run(kernel, [a, b])
    assert b[0] == a[i, j]


def test_provably_negative_expressions_count_from_the_end(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                B[i] = A[i - 8]
                A[-1 - i] = B[i]

    a = np.arange(8, dtype=np.int32)
    expected = a.copy()
    for i in range(8):
        expected[-1 - i] = expected[i - 8]
    interpret(kernel, a, np.zeros(8, np.int32))
    np.testing.assert_array_equal(a, expected)


def test_index_of_unknown_sign_outside_reads_zero_and_drops_stores(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                B[i] = A[i - 3]
            for i in T.serial(8):
                A[i * 2] = 0

    a = np.arange(1, 9, dtype=np.int32)
    result = interpret(kernel, a, np.full(8, -1, np.int32))
    np.testing.assert_array_equal(result, [0, 0, 0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(a, [0, 2, 0, 4, 0, 6, 0, 8])


def test_indices_from_memory_and_of_every_integer_type(interpret):
    @T.prim_func
    def kernel(I: T.Tensor((4,), "int64"), J: T.Tensor((4,), "uint8"), A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(4):
                A[I[i]] = 10
                A[J[i]] = A[J[i]] + 1

    a = np.zeros(8, np.int32)
    interpret(kernel, np.array([0, 2, 4, 6]), np.array([6, 7, 6, 0], np.uint8), a)
    np.testing.assert_array_equal(a, [11, 0, 10, 0, 10, 0, 10, 1])


def test_numpy_integers_index(interpret):
    places = np.array([1, 3])

    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            for p in places:
                A[p] = int(p) * 10
            A[np.int64(0)] = np.int32(5)

    np.testing.assert_array_equal(interpret(kernel, np.zeros(4, np.int32)), [5, 10, 0, 30])


@pytest.mark.parametrize(
    ("index", "error"),
    [
        (lambda A: A[8, 0], IndexOutOfRange),
        (lambda A: A[0, -9], IndexOutOfRange),
        (lambda A: A[0, 0, 0], IndexOutOfRange),
        (lambda A: A[..., ...], IndexOutOfRange),
        (lambda A: A[0:4:-1, 0], InvalidArgument),
        (lambda A: A[0:4:0, 0], InvalidArgument),
        (lambda A: A["row", 0], InvalidArgument),
        (lambda A: A[A, 0], InvalidArgument),
        (lambda A: A[None], InvalidArgument),
    ],
)
def test_impossible_indices_are_errors_that_name_the_buffer(index, error):
    def kernel(A: T.Tensor((8, 8), "int32")):
        with T.Kernel(1):
            index(A)

    with pytest.raises(error, match=r"\bA\b"):
        T.prim_func(kernel)


def test_float_index_is_an_error():
    def kernel(A: T.Tensor((8,), "int32"), x: T.float32):
        with T.Kernel(1):
            A[x] = 0

    with pytest.raises(DtypeError, match="index is not an integer"):
        T.prim_func(kernel)


def test_float_literal_index_is_an_error():
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            A[1.5] = 0

    with pytest.raises((DtypeError, InvalidArgument)):
        T.prim_func(kernel)


def test_bool_index_counts_as_integer(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                A[i > 3] = i

    np.testing.assert_array_equal(interpret(kernel, np.zeros(8, np.int32))[:2], [3, 7])


def test_region_is_not_an_operand():
    def kernel(A: T.Tensor((8, 8), "int32")):
        with T.Kernel(1):
            A[0, 0] = A[0:2, 0] + 1

    with pytest.raises(TypeError):
        T.prim_func(kernel)
