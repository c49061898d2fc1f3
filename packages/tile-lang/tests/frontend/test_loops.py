"""Loops: over run-time ranges they are loops of the kernel, over Python objects they are unrolled."""

from itertools import pairwise

import numpy as np
import pytest

import tilelang.language as T
from tilelang.errors import LoopCarriedValue
from tilelang.ir import tile_ir


def loops(func):
    from tvm import tirx

    return [n for n in tile_ir.walk(func.body) if isinstance(n, tirx.For)]


RANGES = [(5,), (2, 7), (1, 10, 3), (10, 0, -3), (7, 2, -1), (3, 3), (5, 2), (2, 5, -1), (0, 9, 4), (-3, 4, 2)]


@pytest.mark.parametrize("bounds", RANGES)
@pytest.mark.parametrize("spelling", ["range", "T.serial"])
def test_compile_time_bounds_run_as_in_python(interpret, bounds, spelling):
    loop = range if spelling == "range" else T.serial

    @T.prim_func
    def kernel(A: T.Tensor((16,), "int32")):
        with T.Kernel(1):
            count = T.alloc_var("int32", init=0)
            for i in loop(*bounds):
                A[count] = i
                count += 1
            A[15] = count

    expected = list(range(*bounds))
    result = interpret(kernel, np.zeros(16, np.int32))
    assert result[15] == len(expected)
    np.testing.assert_array_equal(result[: len(expected)], expected)


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2])
@pytest.mark.parametrize(("start", "stop"), [(0, 5), (2, 11), (11, 2), (4, 4)])
def test_runtime_bounds_run_as_in_python(interpret, start, stop, step):
    @T.prim_func
    def kernel(lo: T.int32, hi: T.int32, A: T.Tensor((16,), "int32")):
        with T.Kernel(1):
            count = T.alloc_var("int32", init=0)
            for i in range(lo, hi, step):
                A[count] = i
                count += 1
            A[15] = count

    expected = list(range(start, stop, step))
    result = interpret(kernel, start, stop, np.zeros(16, np.int32))
    assert result[15] == len(expected)
    np.testing.assert_array_equal(result[: len(expected)], expected)


def test_runtime_step(interpret):
    @T.prim_func
    def kernel(step: T.int32, A: T.Tensor((16,), "int32")):
        with T.Kernel(1):
            T.clear(A)
            for i in T.serial(1, 14, step):
                A[i] = i

    expected = np.zeros(16, np.int32)
    expected[1:14:4] = [1, 5, 9, 13]
    np.testing.assert_array_equal(interpret(kernel, 4, np.zeros(16, np.int32)), expected)


def test_range_is_a_loop_of_the_kernel_and_a_list_is_unrolled():
    @T.prim_func
    def rolled(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in range(8):
                A[i] = i

    @T.prim_func
    def unrolled(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in list(range(8)):
                A[i] = i

    assert len(loops(rolled)) == 1
    assert len(loops(unrolled)) == 0
    assert len(tile_ir.statements(tile_ir.kernels(unrolled)[0].body)) == 8


def test_enumerate_zip_and_list_comprehensions_at_compile_time(interpret):
    weights = [3, 5, 7]

    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i, w in enumerate(weights):
                A[i] = w
            for i, (a, b) in enumerate(pairwise(weights), start=3):
                A[i] = a * b
            parts = [w * w for w in weights if w > 3]
            A[5] = sum(parts)
            A[6] = len(dict.fromkeys(weights, 1))
            A[7] = max(w for w in weights)

    np.testing.assert_array_equal(interpret(kernel, np.zeros(8, np.int32)), [3, 5, 7, 15, 35, 74, 3, 7])


def test_tiles_in_lists_and_dicts(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((3, 8), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            rows = [T.alloc_fragment((8,), "float32") for _ in range(3)]
            named = {"sum": T.alloc_fragment((8,), "float32")}
            T.clear(named["sum"])
            for r, row in enumerate(rows):
                T.copy(A[r, :], row)
                for i in T.Parallel(8):
                    named["sum"][i] += row[i]
            T.copy(named["sum"], B)

    a = np.arange(24, dtype=np.float32).reshape(3, 8)
    np.testing.assert_array_equal(interpret(kernel, a, np.zeros(8, np.float32)), a.sum(0))


def test_while_on_a_runtime_condition(interpret):
    @T.prim_func
    def collatz(A: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            for i in T.serial(4):
                x = T.alloc_var("int32", init=0)
                steps = T.alloc_var("int32", init=0)
                x = A[i]
                while x != 1:
                    if x % 2 == 0:
                        x = x // 2
                    else:
                        x = 3 * x + 1
                    steps += 1
                A[i] = steps

    np.testing.assert_array_equal(interpret(collatz, np.array([1, 6, 7, 27], np.int32)), [0, 8, 16, 111])


def test_while_on_a_compile_time_condition_is_unrolled(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            stride = 4
            place = 0
            while stride > 0:
                A[place] = stride
                stride //= 2
                place = place + 1

    assert not loops(kernel)
    np.testing.assert_array_equal(interpret(kernel, np.zeros(8, np.int32)), [4, 2, 1, 0, 0, 0, 0, 0])


def test_while_true_with_break(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            i = T.alloc_var("int32", init=0)
            while True:
                A[i] = 1
                i += 1
                if i >= 5:
                    break

    np.testing.assert_array_equal(interpret(kernel, np.zeros(8, np.int32)), [1] * 5 + [0] * 3)


def test_break_and_continue_in_a_serial_loop(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                if A[i] == 2:
                    continue
                if A[i] == 6:
                    break
                A[i] = 100

    result = interpret(kernel, np.arange(8, dtype=np.int32))
    np.testing.assert_array_equal(result, [100, 100, 2, 100, 100, 100, 6, 7])


def test_break_and_continue_in_a_while_loop(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            i = T.alloc_var("int32", init=-1)
            while i < 7:
                i += 1
                if A[i] % 2 == 0:
                    continue
                if i > 5:
                    break
                A[i] = -1

    np.testing.assert_array_equal(interpret(kernel, np.arange(8, dtype=np.int32)), [0, -1, 2, -1, 4, -1, 6, 7])


def test_break_and_continue_in_a_static_loop(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in [0, 1, 2, 3, 4, 5, 6, 7]:
                if i == 1:
                    continue
                if i == 4:
                    break
                A[i] = 1

    np.testing.assert_array_equal(interpret(kernel, np.zeros(8, np.int32)), [1, 0, 1, 1, 0, 0, 0, 0])


def test_break_leaves_the_inner_loop_only(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((4, 4), "int32")):
        with T.Kernel(1):
            for i in T.serial(4):
                for j in T.serial(4):
                    if j > i:
                        break
                    A[i, j] = 1

    np.testing.assert_array_equal(interpret(kernel, np.zeros((4, 4), np.int32)), np.tri(4, dtype=np.int32))


def test_static_loop_around_a_serial_loop_with_break(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((2, 4), "int32")):
        with T.Kernel(1):
            for r in [0, 1]:
                for j in T.serial(4):
                    if j == r + 2:
                        break
                    A[r, j] = 1

    np.testing.assert_array_equal(interpret(kernel, np.zeros((2, 4), np.int32)), [[1, 1, 0, 0], [1, 1, 1, 0]])


def test_grid_unroll_and_vectorized_loops_mean_the_plain_loop(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((4, 8), "int32")):
        with T.Kernel(1):
            for i, j in T.grid(2, 8):
                A[i, j] = i * 8 + j
            for j in T.unroll(8):
                A[2, j] = j
            for j in T.vectorized(8):
                A[3, j] = -j

    j = np.arange(8)
    expected = np.stack([j, j + 8, j, -j])
    np.testing.assert_array_equal(interpret(kernel, np.zeros((4, 8), np.int32)), expected)


def test_loop_variable_may_have_one_name_in_two_loops(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(4):
                A[i] = i
            for i in T.serial(4, 8):
                A[i] = -i

    names = [str(loop.loop_var.name) for loop in loops(kernel)]
    assert len(set(names)) == 2
    assert names[0] == "i"
    np.testing.assert_array_equal(interpret(kernel, np.zeros(8, np.int32)), [0, 1, 2, 3, -4, -5, -6, -7])


def test_name_carried_around_a_runtime_loop_is_an_error():
    def kernel(A: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            total = A[0]
            for i in T.serial(8):
                total = total + A[i]
            A[0] = total

    with pytest.raises(LoopCarriedValue, match="T.alloc_var"):
        T.prim_func(kernel)


def test_name_read_before_its_assignment_in_a_runtime_loop_is_an_error():
    def kernel(A: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            previous = A[0]
            for i in T.serial(8):
                A[i] = previous
                previous = A[i] + 1

    with pytest.raises(LoopCarriedValue, match="previous carries a value"):
        T.prim_func(kernel)


def test_name_carried_around_a_static_loop_is_python(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            total = A[0]
            for i in [1, 2, 3]:
                total = total + A[i]
            A[0] = total

    assert interpret(kernel, np.array([1, 20, 300, 4000], np.int32))[0] == 4321


def test_temporary_of_a_runtime_loop_is_fresh_in_each_iteration(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                x = A[i] * 2
                x = x + 1
                A[i] = x

    np.testing.assert_array_equal(interpret(kernel, np.arange(8, dtype=np.int32)), np.arange(8) * 2 + 1)


def test_temporary_after_a_runtime_loop_is_poisoned():
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1):
            for i in T.serial(8):
                x = A[i]
            A[0] = x

    with pytest.raises(LoopCarriedValue, match="x is used after a run-time loop"):
        T.prim_func(kernel)


def test_buffer_allocated_before_a_loop_keeps_its_name_in_it(interpret):
    @T.prim_func
    def kernel(A: T.Tensor((4, 8), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            total = T.alloc_fragment((8,), "float32")
            T.clear(total)
            for r in T.serial(4):
                row = T.alloc_fragment((8,), "float32")
                T.copy(A[r, 0], row)
                for i in T.Parallel(8):
                    total[i] = total[i] + row[i]
            T.copy(total, B)

    a = np.arange(32, dtype=np.float32).reshape(4, 8)
    np.testing.assert_array_equal(interpret(kernel, a, np.zeros(8, np.float32)), a.sum(0))
