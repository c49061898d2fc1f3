"""Binding arguments: dynamic dimensions, scalars, and what is refused."""

import numpy as np
import pytest

import tilelang.language as T
from tilelang.interpreter import InterpreterError, bind_dims, run

M, K = T.dynamic("m"), T.dynamic("k")


@T.prim_func
def scaled_rows(
    A: T.Tensor((M, K), "float32"), B: T.Tensor((M * 2 + 1, K), "float32"), factor: T.float32, rows: T.int32
):
    with T.Kernel(T.ceildiv(M, 4), threads=4) as bx:
        for i, j in T.Parallel(4, 8):
            if bx * 4 + i < rows:
                for part in T.serial(T.ceildiv(K, 8)):
                    B[bx * 4 + i, part * 8 + j] = A[bx * 4 + i, part * 8 + j] * factor


def test_dimensions_come_from_shapes():
    a, b = np.ones((5, 11), np.float32), np.zeros((11, 11), np.float32)
    assert bind_dims(scaled_rows, [a, b, 3.0, 4]) == {"m": 5, "k": 11}
    run(scaled_rows, [a, b, 3.0, 4])
    assert b.sum() == 4 * 11 * 3


@pytest.mark.parametrize("size", [0, 1, 4, 9])
def test_any_size_including_none(size):
    a, b = np.ones((size, 3), np.float32), np.zeros((size * 2 + 1, 3), np.float32)
    run(scaled_rows, [a, b, 2.0, 100])
    assert b.sum() == size * 3 * 2


def test_shapes_must_agree():
    with pytest.raises(InterpreterError, match=r"B.shape\[0\] does not fit"):
        run(scaled_rows, [np.ones((5, 3), np.float32), np.zeros((10, 3), np.float32), 1.0, 1])
    with pytest.raises(InterpreterError, match=r"B.shape\[1\] does not fit"):
        run(scaled_rows, [np.ones((5, 3), np.float32), np.zeros((11, 4), np.float32), 1.0, 1])


def test_wrong_arguments_are_refused():
    a, b = np.ones((5, 3), np.float32), np.zeros((11, 3), np.float32)
    with pytest.raises(InterpreterError, match="takes 4 arguments, but 3 are given"):
        run(scaled_rows, [a, b, 1.0])
    with pytest.raises(InterpreterError, match="argument A must be an array of float32"):
        run(scaled_rows, [a.astype(np.float16), b, 1.0, 1])
    with pytest.raises(InterpreterError, match="wrong number of dimensions"):
        run(scaled_rows, [a[0], b, 1.0, 1])
    with pytest.raises(InterpreterError, match="no dynamic dimension 'q'"):
        run(scaled_rows, [a, b, 1.0, 1], {"q": 3})
    with pytest.raises(InterpreterError, match="does not fit"):
        run(scaled_rows, [a, b, 1.0, 1], {"m": 6})


def test_packed_dynamic_length():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "uint4"), B: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=4):
            for i in T.serial(n):
                B[i] = T.cast(A[i], "int32")

    b = np.zeros(6, np.int32)
    run(main, [np.asarray([0x21, 0x43, 0x65], np.uint8), b])
    np.testing.assert_array_equal(b, [1, 2, 3, 4, 5, 6])


def test_an_unknown_that_no_equation_gives():
    p, q = T.dynamic("p"), T.dynamic("q")

    @T.prim_func
    def main(A: T.Tensor((p * q,), "int32")):
        with T.Kernel(1, threads=4):
            for i, j in T.Parallel(p, q):
                A[i * q + j] = i * 10 + j

    a = np.zeros(6, np.int32)
    with pytest.raises(InterpreterError, match="dimension p, q cannot be found"):
        run(main, [a])
    run(main, [a], {"p": 2})
    np.testing.assert_array_equal(a, [0, 1, 2, 10, 11, 12])


def test_scalars_take_their_declared_type():
    @T.prim_func
    def main(B: T.Tensor((1,), "float32"), x: T.float16, n: T.uint8):
        with T.Kernel(1, threads=1):
            B[0] = T.cast(x, "float32") + T.cast(n, "float32")

    b = np.zeros(1, np.float32)
    run(main, [b, 2049.0, 257])
    assert b[0] == 2048 + 1
