"""`if`: at compile time one side is traced, at run time both; names keep Python's meaning where they can."""

import numpy as np
import pytest

import tilelang.language as T
from tilelang.errors import LoopCarriedValue, UndefinedName
from tilelang.ir import tile_ir

X = np.arange(-4, 4, dtype=np.int32)


def branches(func):
    """Number of run-time branches in a traced function."""
    from tvm import tirx

    return sum(isinstance(n, tirx.IfThenElse) for n in tile_ir.walk(func.body))


def test_runtime_if_elif_else(interpret):
    @T.prim_func
    def sign(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                if A[i] > 0:
                    B[i] = 1
                elif A[i] < 0:
                    B[i] = -1
                else:
                    B[i] = 0

    np.testing.assert_array_equal(interpret(sign, X, np.full(8, 9, np.int32)), np.sign(X))


def test_nested_runtime_branches(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                B[i] = 0
                if A[i] >= 0:
                    if A[i] % 2 == 0:
                        B[i] = 10
                    else:
                        B[i] = 11
                elif A[i] == -3:
                    B[i] = 12

    expected = [12 if x == -3 else 0 if x < 0 else 10 + x % 2 for x in X]
    np.testing.assert_array_equal(interpret(kernel, X, np.full(8, 9, np.int32)), expected)


@pytest.mark.parametrize("relu", [True, False])
def test_compile_time_if_traces_one_side(interpret, relu):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                if relu:
                    B[i] = T.max(A[i], 0)
                else:
                    B[i] = A[i]

    assert branches(kernel) == 0
    np.testing.assert_array_equal(interpret(kernel, X, np.zeros(8, np.int32)), np.maximum(X, 0) if relu else X)


@pytest.mark.parametrize("mode", ["double", "negate", "other"])
def test_compile_time_elif_chain(interpret, mode):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                if mode == "double":
                    A[i] = A[i] * 2
                elif mode == "negate":
                    A[i] = -A[i]
                else:
                    pass

    expected = {"double": X * 2, "negate": -X, "other": X}[mode]
    np.testing.assert_array_equal(interpret(kernel, X.copy()), expected)


def test_static_branch_inside_runtime_branch(interpret):
    bias = 5

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                if A[i] > 0:
                    if bias is not None:
                        A[i] = A[i] + bias
                    else:
                        A[i] = 0

    assert branches(kernel) == 1
    np.testing.assert_array_equal(interpret(kernel, X.copy()), np.where(X > 0, X + 5, X))


def test_value_bound_in_a_static_branch_lives_on(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            if True:
                first = A[0]
            for i in T.serial(8):
                A[i] = first

    np.testing.assert_array_equal(interpret(kernel, X.copy()), np.full(8, -4))


def test_name_equal_on_both_runtime_sides_lives_on(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1):
            if n > 3:
                width = 4
                A[0] = 1
            else:
                width = 4
                A[0] = 2
            for i in range(width):
                A[i] = A[i] + width

    tilelang_args = (X.copy(), 5)
    interpret(kernel, *tilelang_args)
    np.testing.assert_array_equal(tilelang_args[0], [5, 1, 2, 3, 0, 1, 2, 3])


def test_mutable_scalar_carries_a_value_out_of_a_branch(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            best = T.alloc_var("int32", init=-100)
            for i in T.serial(8):
                if A[i] > best:
                    best = A[i]
            A[0] = best

    assert interpret(kernel, X.copy())[0] == 3


def test_name_assigned_in_a_runtime_branch_is_poisoned_after_it():
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            if A[0] > 0:
                y = A[1]
            A[2] = y

    with pytest.raises(LoopCarriedValue, match="y is used after a run-time if"):
        T.prim_func(kernel)


def test_poisoned_name_may_be_assigned_again(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            if A[0] > 0:
                y = A[1]
                A[3] = y
            y = A[2]
            A[4] = y

    assert interpret(kernel, X.copy())[4] == X[2]


@pytest.mark.parametrize("n", [1, 9])
def test_name_changed_on_one_runtime_side_keeps_its_old_value_on_the_other(interpret, n):
    @T.prim_func
    def kernel(n: T.int32, A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            y = A[1]
            if n < 4:
                y = A[2]
                A[0] = y + 100
            else:
                A[0] = y

    assert interpret(kernel, n, X.copy())[0] == (X[2] + 100 if n < 4 else X[1])


def test_static_branch_not_taken_leaves_no_name():
    flag = False

    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            if flag:
                y = 1
            A[0] = y

    with pytest.raises(UndefinedName, match="y is used before it is assigned"):
        T.prim_func(kernel)


def test_condition_with_side_free_calls_and_membership(interpret):
    chosen = {1, 3}

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for step in [1, 2, 3]:
                if step in chosen:
                    A[step] = 100 + step

    np.testing.assert_array_equal(interpret(kernel, X.copy())[:4], [-4, 101, -2, 103])


def test_if_without_effect_emits_nothing():
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            if A[0] > 0:
                pass
            A[0] = 1

    assert branches(kernel) == 0


def test_integer_condition_means_not_zero(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                if A[i]:
                    A[i] = 1

    np.testing.assert_array_equal(interpret(kernel, X.copy()), (X != 0).astype(np.int32))
