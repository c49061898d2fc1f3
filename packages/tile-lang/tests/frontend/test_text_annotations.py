"""`from __future__ import annotations`: annotations are text, and mean what they would mean at that place."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang
import tilelang.language as T

N = 8
X = np.arange(8, dtype=np.float32)


def test_names_of_the_module(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((N,), "float32"), x: T.float32):
        with T.Kernel(1):
            T.fill(A, x)

    array = X.copy()
    interpret(kernel, array, 3.0)
    np.testing.assert_array_equal(array, np.full(8, 3, np.float32))


def test_names_of_the_enclosing_function(interpret):
    def factory(n, dtype):
        m = T.dynamic("m")

        @T.prim_func
        def kernel(A: T.Tensor((m, n), dtype), B: T.Tensor((m, n), dtype)):
            with T.Kernel(m):
                T.copy(A, B)

        return kernel

    a = np.arange(24, dtype=np.float32).reshape(3, 8)
    np.testing.assert_array_equal(interpret(factory(8, "float32"), a, np.zeros_like(a)), a)


def test_name_used_in_the_annotation_only(interpret):
    def factory(width):
        @T.prim_func
        def kernel(A: T.Tensor((width,), "float32")):
            with T.Kernel(1):
                T.clear(A)

        return kernel

    np.testing.assert_array_equal(interpret(factory(8), X.copy()), np.zeros(8, np.float32))


def test_scalar_annotations(interpret):
    @T.prim_func
    def kernel(n: int, x: "float32", flag: bool, A: T.Tensor((8,), "float32")):  # noqa: F821, UP037
        with T.Kernel(1):
            for i in T.serial(n):
                if flag:
                    A[i] = x

    np.testing.assert_array_equal(interpret(kernel, 3, 2.5, True, X.copy()), [2.5, 2.5, 2.5, 3, 4, 5, 6, 7])


@pytest.mark.parametrize("size", [4, 8])
def test_eager_style(size):
    @tilelang.jit(execution="interpret")
    def double(A: T.Tensor, factor: float = 2.0):
        B = T.empty(A.shape, "float32")
        with T.Kernel(1):
            for i in T.serial(A.shape[0]):
                B[i] = A[i] * factor
        return B

    np.testing.assert_array_equal(double(X[:size]), X[:size] * 2)
