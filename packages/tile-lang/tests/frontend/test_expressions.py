"""Booleans, comparisons and ternaries: Python's rule at compile time, the kernel's at run time."""

import numpy as np
import pytest

import tilelang.language as T
from tilelang.ir import tile_ir

X = np.arange(-4, 4, dtype=np.int32)


def test_and_or_not_of_runtime_values(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((3, 8), "bool")):
        with T.Kernel(1):
            for i in T.serial(8):
                B[0, i] = A[i] > -2 and A[i] < 2
                B[1, i] = A[i] < -2 or A[i] > 2 or A[i] == 0
                B[2, i] = not A[i] > 0

    result = interpret(kernel, X, np.zeros((3, 8), bool))
    np.testing.assert_array_equal(result[0], (X > -2) & (X < 2))
    np.testing.assert_array_equal(result[1], (np.abs(X) > 2) & (X != 3) | (X > 2) | (X == 0))
    np.testing.assert_array_equal(result[2], ~(X > 0))


def test_and_or_mix_compile_time_and_runtime_values(interpret):
    causal, full = True, None

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((4, 8), "bool")):
        with T.Kernel(1):
            for i in T.serial(8):
                B[0, i] = causal and A[i] > 0
                B[1, i] = A[i] > 0 and causal
                B[2, i] = full or A[i] > 0
                B[3, i] = A[i] > 0 or causal

    result = interpret(kernel, X, np.zeros((4, 8), bool))
    np.testing.assert_array_equal(result, [X > 0, X > 0, X > 0, np.ones(8, bool)])


def test_compile_time_and_or_give_their_operands():
    default = None
    seen = []

    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            size = default or 7
            seen.append(size)
            seen.append(size and "yes")
            seen.append(not size)
            A[0] = size

    T.prim_func(kernel)
    assert seen == [7, "yes", False]


def test_static_short_circuit_does_not_evaluate_the_rest():
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            flag = False and undefined_name  # noqa: F821
            if flag:
                A[0] = 1
            A[1] = 1

    T.prim_func(kernel)


def test_chained_comparison_of_runtime_values(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((3, 8), "bool")):
        with T.Kernel(1):
            for i in T.serial(8):
                B[0, i] = -2 <= A[i] < 2
                B[1, i] = -3 < A[i] <= i < 6
                B[2, i] = 0 < i < 5 and A[i] != 0

    i = np.arange(8)
    result = interpret(kernel, X, np.zeros((3, 8), bool))
    np.testing.assert_array_equal(result[0], (X >= -2) & (X < 2))
    np.testing.assert_array_equal(result[1], (X > -3) & (X <= i) & (i < 6))
    np.testing.assert_array_equal(result[2], (i > 0) & (i < 5) & (X != 0))


def test_chained_comparison_evaluates_the_middle_once():
    calls = []

    def middle():
        calls.append(1)
        return 3

    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            if 1 < middle() < 5:
                A[0] = 1

    T.prim_func(kernel)
    assert len(calls) == 1


def test_ternary_of_runtime_values_reads_only_the_taken_side(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            tile = T.alloc_local((8,), "int32")
            for i in T.serial(4):
                tile[i] = A[i]
            for i in T.serial(8):
                B[i] = tile[i] if i < 4 else -1  # elements 4 to 7 of the tile were never written

    np.testing.assert_array_equal(interpret(kernel, X, np.zeros(8, np.int32)), [-4, -3, -2, -1, -1, -1, -1, -1])


def test_ternary_at_compile_time_traces_one_side(interpret):
    scale = 2

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                A[i] = A[i] * scale if scale is not None else missing  # noqa: F821

    np.testing.assert_array_equal(interpret(kernel, X.copy()), X * 2)


def test_nested_ternaries(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                A[i] = 1 if A[i] > 0 else -1 if A[i] < 0 else 0

    np.testing.assert_array_equal(interpret(kernel, X.copy()), np.sign(X))


def test_walrus_binds_a_value(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            if (n := 4) > 3:
                for i in T.serial(n):
                    A[i] = n

    np.testing.assert_array_equal(interpret(kernel, X.copy()), [4, 4, 4, 4, 0, 1, 2, 3])


def test_format_string_of_compile_time_values(interpret):
    seen = []

    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in [0, 1]:
                seen.append(f"tile_{i:02d} of {A.shape[0]}")
            A[0] = 1

    T.prim_func(kernel)
    assert seen == ["tile_00 of 8", "tile_01 of 8"]


def test_lambda_in_a_kernel(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            square = lambda x: x * x  # noqa: E731
            for i in T.serial(8):
                A[i] = square(A[i]) + 1

    np.testing.assert_array_equal(interpret(kernel, X.copy()), X * X + 1)


def test_python_max_and_min_of_compile_time_values_and_kernel_ones(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                A[i] = T.min(T.max(A[i], min(-2, 5)), max(1, 0), 100)

    np.testing.assert_array_equal(interpret(kernel, X.copy()), np.clip(X, -2, 1))


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_match_on_a_compile_time_value(interpret, mode):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                match mode:
                    case 0:
                        A[i] = 0
                    case 1 if i is not None:
                        A[i] = A[i] + 1
                    case _:
                        A[i] = -A[i]

    expected = [0 * X, X + 1, -X][mode]
    np.testing.assert_array_equal(interpret(kernel, X.copy()), expected)


def test_conditions_read_memory_when_the_statement_runs(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            first = A[0]  # bound here: later stores to A[0] do not change it
            A[0] = 50
            A[1] = first
            A[2] = A[0]

    np.testing.assert_array_equal(interpret(kernel, X.copy())[:3], [50, -4, 50])


def test_index_arithmetic_stays_an_expression():
    from tvm import tirx

    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        with T.Kernel(8) as bx:
            base = bx * 8
            for i in T.serial(8):
                A[base + i] = i

    assert not any(isinstance(n, tirx.Bind) for n in tile_ir.walk(kernel.body))
