"""Functions in kernels: helpers, closures, macros, methods, recursion, arguments of every kind."""

import functools
import importlib.util
from pathlib import Path

import numpy as np
import pytest

import tilelang.language as T
from tilelang.errors import IndexOutOfRange, StaticValueNeeded, UnsupportedConstruct

X = np.arange(-4, 4, dtype=np.int32)

_spec = importlib.util.spec_from_file_location(
    "macros_of_another_module", Path(__file__).with_name("macros_of_another_module.py")
)
other = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(other)


def square(x):
    return x * x


def test_plain_helper_computes_expressions(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                A[i] = square(A[i]) + other.plain_square(2)

    np.testing.assert_array_equal(interpret(kernel, X.copy()), X * X + 4)


def test_plain_helper_may_emit_statements_without_control_flow(interpret):
    def store_pair(A, i, value):
        A[i] = value
        A[i + 1] = value + 1
        T.fill(A[6:8], 9)

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            store_pair(A, 0, 5)
            store_pair(A, 2, A[0] * 2)

    np.testing.assert_array_equal(interpret(kernel, X.copy()), [5, 6, 10, 11, 0, 1, 9, 9])


def test_closure_values_and_factories(interpret):
    def factory(n, scale, act=None):
        @T.prim_func
        def kernel(A: T.Tensor((n,), "int32")):
            with T.Kernel(1):
                for i in T.serial(n):
                    A[i] = A[i] * scale if act is None else act(A[i] * scale)

        return kernel

    np.testing.assert_array_equal(interpret(factory(8, 3), X.copy()), X * 3)
    np.testing.assert_array_equal(interpret(factory(8, 2, lambda x: T.max(x, 0)), X.copy()), np.maximum(X * 2, 0))


def test_nested_function_in_the_kernel_is_traced(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):

            def clip(i, low):
                if A[i] < low:
                    A[i] = low

            for i in T.serial(8):
                clip(i, -1)
            clip(0, 7)

    np.testing.assert_array_equal(interpret(kernel, X.copy()), [7, -1, -1, -1, 0, 1, 2, 3])


def test_helper_with_runtime_if_names_the_macro_as_repair():
    def clip(x):
        return 0 if x < 0 else x

    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            A[0] = clip(A[0])

    with pytest.raises(StaticValueNeeded, match="@T.macro"):
        T.prim_func(kernel)


def test_macro_with_control_flow(interpret):
    @T.macro
    def relu(A, n):
        for i in T.serial(n):
            if A[i] < 0:
                A[i] = 0

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            relu(A, 4)
            T.copy(A, B)

    np.testing.assert_array_equal(interpret(kernel, X.copy(), np.zeros(8, np.int32)), [0, 0, 0, 0, 0, 1, 2, 3])


def test_macro_returns_values_and_buffers(interpret):
    @T.macro
    def load(A, n):
        tile = T.alloc_shared((n,), "int32")
        T.copy(A[0:n], tile)
        return tile, tile[0] + 1

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            tile, first = load(A, 8)
            for i in T.Parallel(8):
                B[i] = tile[i] * first

    np.testing.assert_array_equal(interpret(kernel, X, np.zeros(8, np.int32)), X * (X[0] + 1))


def test_macros_nest_and_take_keywords(interpret):
    @T.macro
    def add(A, i, value=1, *, twice=False):
        A[i] = A[i] + value
        if twice:
            A[i] = A[i] + value

    @T.macro
    def add_all(A, n, **options):
        for i in T.serial(n):
            add(A, i, **options)

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            add_all(A, 8, value=5, twice=True)
            add(A, 0)

    np.testing.assert_array_equal(interpret(kernel, X.copy()), X + 10 + (np.arange(8) == 0))


def test_macro_of_a_kernel_is_called_by_another_macro(interpret):
    @T.macro
    def for_each(do, A):
        for i in T.serial(4):
            do(A, i)

    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1) as bx:
            factor = T.alloc_var("int32", init=bx + 3)

            @T.macro
            def scale(A, i):
                if i > 1:
                    A[i] = A[i] * factor

            for_each(scale, A)

    got = interpret(kernel, np.arange(1, 5, dtype=np.int32))
    assert got.tolist() == [1, 2, 9, 12]


def test_macro_of_another_module_uses_its_own_globals(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                other.add_step(A, i, times=2)

    np.testing.assert_array_equal(interpret(kernel, X.copy()), np.where(X > 0, X + 20, X))


def test_error_in_a_macro_of_another_module_shows_both_places():
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            other.broken(A)

    with pytest.raises(IndexOutOfRange) as caught:
        T.prim_func(kernel)
    assert caught.value.location.file.endswith("macros_of_another_module.py")
    assert caught.value.location.text == "A[0, 0] = 1"
    assert [place.text for place in caught.value.callers] == ["other.broken(A)"]


def test_macro_return_under_a_runtime_condition_is_an_error():
    @T.macro
    def pick(A):
        if A[0] > 0:
            return A[1]
        return A[2]

    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            A[0] = pick(A)

    with pytest.raises(UnsupportedConstruct, match="`return` under a run-time condition"):
        T.prim_func(kernel)


def test_macro_in_a_runtime_branch_may_return(interpret):
    @T.macro
    def twice(x):
        y = x * 2
        return y

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                if A[i] > 0:
                    A[i] = twice(A[i])

    np.testing.assert_array_equal(interpret(kernel, X.copy()), np.where(X > 0, 2 * X, X))


def test_macro_as_a_method(interpret):
    class Scaler:
        def __init__(self, factor):
            self.factor = factor

        @T.macro
        def apply(self, A, n):
            for i in T.serial(n):
                A[i] = A[i] * self.factor

        def offset(self, x):
            return x + self.factor

    scaler = Scaler(3)

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            scaler.apply(A, 8)
            A[0] = scaler.offset(A[0])

    np.testing.assert_array_equal(interpret(kernel, X.copy()), X * 3 + 3 * (np.arange(8) == 0))


def test_kernel_made_in_a_method(interpret):
    class Model:
        size = 8

        def kernel(self):
            @T.prim_func
            def main(A: T.Tensor((self.size,), "int32")):
                with T.Kernel(1):
                    for i in T.serial(self.size):
                        A[i] = i

            return main

    np.testing.assert_array_equal(interpret(Model().kernel(), X.copy()), np.arange(8))


def test_star_arguments_and_defaults(interpret):
    def total(*values, start=0, **scale):
        result = start
        for value in values:
            result = result + value * scale.get("by", 1)
        return result

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            parts = [A[1], A[2]]
            options = {"by": 10}
            A[0] = total(*parts, A[3], start=7, **options)

    assert interpret(kernel, np.arange(8, dtype=np.int32))[0] == 67


def test_recursion_at_compile_time(interpret):
    def tree_sum(values):
        if len(values) == 1:
            return values[0]
        half = len(values) // 2
        return tree_sum(values[:half]) + tree_sum(values[half:])

    @T.macro
    def fill_down(A, i):
        A[i] = i
        if i > 0:
            fill_down(A, i - 1)

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            fill_down(A, 6)
            A[7] = tree_sum([A[i] for i in range(7)])

    np.testing.assert_array_equal(interpret(kernel, X.copy()), [0, 1, 2, 3, 4, 5, 6, 21])


def test_functools_partial_and_map(interpret):
    add = functools.partial(lambda a, b: a + b, 5)

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            a, b = map(add, [A[0], A[1]])
            A[0] = functools.reduce(lambda x, y: x * y, [a, b, 2])

    assert interpret(kernel, X.copy())[0] == (5 - 4) * (5 - 3) * 2


def test_with_of_another_context_manager(interpret):
    import contextlib

    entered = []

    @contextlib.contextmanager
    def note(name):
        entered.append(name)
        yield name
        entered.append(f"end of {name}")

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with note("outer") as name, T.Kernel(1):
            with note("inner"):
                for i in T.serial(8):
                    if A[i] > 0:
                        A[i] = len(name)

    assert entered == ["outer", "inner", "end of inner", "end of outer"]
    np.testing.assert_array_equal(interpret(kernel, X.copy()), np.where(X > 0, 5, X))


def test_other_decorators_below_prim_func(interpret):
    def harmless(function):
        @functools.wraps(function)
        def wrapper(*args):
            raise AssertionError("the kernel's text is traced, the wrapper is not called")

        return wrapper

    @T.prim_func
    @harmless
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            T.clear(A)

    np.testing.assert_array_equal(interpret(kernel, X.copy()), 0 * X)


def test_prim_func_with_parentheses_and_options(interpret):
    @T.prim_func(private=True)
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            T.clear(A)

    np.testing.assert_array_equal(interpret(kernel, X.copy()), 0 * X)


def test_docstring_assert_and_pass_are_allowed(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        """Fill with zeros."""
        assert A.shape[0] == 8, "a compile-time assertion"
        with T.Kernel(1):
            T.clear(A)

    np.testing.assert_array_equal(interpret(kernel, X.copy()), 0 * X)


def test_failed_assertion_at_compile_time_is_pythons():
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            assert A.shape[0] % 16 == 0, "needs a multiple of 16"

    with pytest.raises(AssertionError, match="needs a multiple of 16"):
        T.prim_func(kernel)


def test_exception_of_a_helper_passes_through():
    def lookup(table, key):
        return table[key]

    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            A[0] = lookup({}, "tile")

    with pytest.raises(KeyError, match="tile"):
        T.prim_func(kernel)


def test_imports_in_the_kernel(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        import math
        from math import gcd

        with T.Kernel(1):
            A[0] = math.isqrt(50) + gcd(12, 18)

    assert interpret(kernel, X.copy())[0] == 13


def test_failed_trace_leaves_nothing_behind(interpret):
    def broken(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.Parallel(8):
                A[8] = 1

    with pytest.raises(IndexOutOfRange):
        T.prim_func(broken)

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            T.clear(A)

    np.testing.assert_array_equal(interpret(kernel, X.copy()), 0 * X)
