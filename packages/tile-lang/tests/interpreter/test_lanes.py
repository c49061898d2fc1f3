"""Threads and iterations as lanes: divergence, private memory, races, what may not differ."""

import numpy as np
import pytest
from tvm import tirx as tir

import tilelang.language as T
from tilelang.interpreter import InterpreterError, run
from tilelang.ir import tile_ir


def test_threads_take_their_own_branches():
    @T.prim_func
    def main(B: T.Tensor((8, 2), "int32")):
        with T.Kernel(1, threads=8):
            tx = T.get_thread_binding()
            x = T.alloc_var("int32", init=0)
            if tx < 3:
                x = 10 + tx
            else:
                if tx == 5:
                    x = 50
                else:
                    x = -1
            B[tx, 0] = x
            for i in T.serial(tx):
                x = x + 1
            B[tx, 1] = x

    b = np.zeros((8, 2), np.int32)
    run(main, [b])
    first = np.asarray([10, 11, 12, -1, -1, 50, -1, -1])
    np.testing.assert_array_equal(b, np.stack([first, first + np.arange(8)], 1))


def test_while_break_and_continue_by_lane():
    @T.prim_func
    def main(B: T.Tensor((8, 3), "int32")):
        with T.Kernel(1, threads=8):
            tx = T.get_thread_binding()
            collatz = T.alloc_var("int32", init=tx + 1)
            steps = T.alloc_var("int32", init=0)
            while collatz != 1:
                if collatz % 2 == 0:
                    collatz = collatz // 2
                else:
                    collatz = collatz * 3 + 1
                steps = steps + 1
            B[tx, 0] = steps
            odd = T.alloc_var("int32", init=0)
            last = T.alloc_var("int32", init=0)
            for i in T.serial(10):
                if i > tx:
                    break
                last = i
                if i % 2 == 0:
                    continue
                odd = odd + i
            B[tx, 1] = odd
            B[tx, 2] = last

    b = np.zeros((8, 3), np.int32)
    run(main, [b])

    def collatz(n):
        return 0 if n == 1 else 1 + collatz(n // 2 if n % 2 == 0 else 3 * n + 1)

    np.testing.assert_array_equal(b[:, 0], [collatz(t + 1) for t in range(8)])
    np.testing.assert_array_equal(b[:, 1], [sum(i for i in range(t + 1) if i % 2) for t in range(8)])
    np.testing.assert_array_equal(b[:, 2], range(8))


def test_thread_axes_have_x_fastest():
    @T.prim_func
    def main(B: T.Tensor((2, 4), "int32")):
        with T.Kernel(1, threads=(4, 2)):
            tx = T.get_thread_binding(0)
            ty = T.get_thread_binding(1)
            B[ty, tx] = ty * 10 + tx

    b = np.zeros((2, 4), np.int32)
    run(main, [b])
    np.testing.assert_array_equal(b, [[0, 1, 2, 3], [10, 11, 12, 13]])


def test_lockstep_reads_before_writes():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            tx = T.get_thread_binding()
            s = T.alloc_shared((8,), "int32")
            s[tx] = tx
            T.sync_threads()
            B[tx] = s[7 - tx]

    b = np.zeros(8, np.int32)
    run(main, [b])
    np.testing.assert_array_equal(b, np.arange(8)[::-1])


def test_atomics_count_once_per_thread():
    @T.prim_func
    def main(B: T.Tensor((4,), "int32"), C: T.Tensor((1,), "int32")):
        with T.Kernel(2, threads=8):
            tx = T.get_thread_binding()
            T.atomic_add(C[0], 1)
            old = T.atomic_add(B[tx % 3], 1, return_prev=True)
            if old == 0:
                T.atomic_add(B[3], 1)
            T.atomic_add(B[tx + 4], 1)

    b, c = np.zeros(4, np.int32), np.zeros(1, np.int32)
    run(main, [b, c])
    assert b.tolist() == [6, 6, 4, 3]
    assert c[0] == 16


def test_loops_inside_parallel_iterations():
    @T.prim_func
    def main(B: T.Tensor((6, 2), "int32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(6):
                total = T.alloc_var("int32", init=0)
                for k in T.serial(i, i * 2):
                    if k == 7:
                        break
                    total = total + k
                B[i, 0] = total
                n = T.alloc_var("int32", init=i)
                while n > 2:
                    n = n - 2
                B[i, 1] = n

    b = np.zeros((6, 2), np.int32)
    run(main, [b])
    first = [sum(k for k in range(i, i * 2) if k < 7) for i in range(6)]
    np.testing.assert_array_equal(b, np.stack([first, [0, 1, 2, 1, 2, 1]], 1))


def test_a_lane_that_left_a_while_stays_out():
    # The condition reads memory, which a lane that is out would see as 0, and so as true again.
    @T.prim_func
    def main(B: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=4):
            tx = T.get_thread_binding()
            s = T.alloc_shared((4,), "int32")
            s[tx] = 10 - tx
            while s[tx] < 10:
                s[tx] = s[tx] + 1
            B[tx] = s[tx]

    b = np.zeros(4, np.int32)
    run(main, [b])
    assert (b == 10).all()


def test_kernels_without_threads_have_one_lane():
    @T.prim_func
    def main(B: T.Tensor((4,), "int32"), C: T.Tensor((1,), "int32")):
        with T.Kernel(4) as bx:
            x = T.alloc_local((2,), "int32")
            T.fill(x, 3)
            x[0] = x[0] + bx
            B[bx] = x[0] + x[1]
            T.atomic_add(C[0], 1)

    b, c = np.zeros(4, np.int32), np.zeros(1, np.int32)
    run(main, [b, c])
    np.testing.assert_array_equal(b, [6, 7, 8, 9])
    assert c[0] == 4


def test_private_arrays_are_per_thread_and_per_iteration():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32"), C: T.Tensor((4, 4), "int32")):
        with T.Kernel(1, threads=8):
            tx = T.get_thread_binding()
            a = T.alloc_local((4,), "int32")
            T.clear(a)
            for i in T.serial(4):
                a[i] = a[i] + tx * i
            B[tx] = a[0] + a[1] + a[2] + a[3]
            for i, j in T.Parallel(4, 4):
                p = T.alloc_local((2,), "int32")
                p[0] = i
                p[1] = j
                C[i, j] = p[0] * 10 + p[1]

    b, c = np.zeros(8, np.int32), np.zeros((4, 4), np.int32)
    run(main, [b, c])
    np.testing.assert_array_equal(b, np.arange(8) * 6)
    np.testing.assert_array_equal(c, np.add.outer(np.arange(4) * 10, np.arange(4)))


def test_continue_in_a_parallel_loop():
    # The frontend refuses it, the IR has it.
    out = tir.decl_buffer((8,), "int32", name="B", layout=None)
    i = tir.Var("i", "int32")
    body = tile_ir.sequence(
        [
            tir.IfThenElse(tir.EQ(i % 2, 0), tir.Evaluate(tir.continue_loop()), None),
            tir.BufferStore(out, i, [i]),
        ]
    )
    extent = tir.const(8, "int32")
    loop = tile_ir.ParallelNest((i,), (extent,), body, {}).to_stmt()
    kernel = tile_ir.Kernel(0, ((tir.Var("bx", "int32"), tir.const(1, "int32")),), (), loop).to_stmt()
    b = np.zeros(8, np.int32)
    run(tir.PrimFunc([out], kernel), [b])
    np.testing.assert_array_equal(b, [0, 1, 0, 3, 0, 5, 0, 7])


def expect(message, func, arguments, line_of=None):
    with pytest.raises(InterpreterError, match=message) as caught:
        run(func, arguments)
    error = caught.value
    assert error.file == __file__
    with open(__file__) as text:
        source = text.read().splitlines()[error.line - 1]
    if line_of is not None:
        assert line_of in source, source
    return error


def test_outer_private_memory_in_a_parallel_loop_must_be_equal():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32"), varying: T.bool):
        with T.Kernel(1, threads=8):
            tx = T.get_thread_binding()
            x = T.alloc_var("int32", init=7)
            if varying:
                x = tx
            for i in T.Parallel(8):
                B[i] = x

    b = np.zeros(8, np.int32)
    run(main, [b, False])
    assert (b == 7).all()
    expect("x differs between threads", main, [b, True], "B[i] = x")


def test_thread_index_is_no_operand_of_the_block():
    @T.prim_func
    def parallel(B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            tx = T.get_thread_binding()
            for i in T.Parallel(8):
                B[i] = tx

    @T.prim_func
    def operand(B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            tx = T.get_thread_binding()
            T.fill(B[tx : tx + 1], 0)

    b = np.zeros(8, np.int32)
    expect("differs between threads", parallel, [b], "B[i] = tx")
    expect("differs between threads", operand, [b], "T.fill")


def test_operators_need_uniform_control():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            tx = T.get_thread_binding()
            if tx < 4:
                T.clear(B)

    expect("tl.fill is reached by some threads only", main, [np.zeros(8, np.int32)], "T.clear")


def test_two_threads_with_different_values_race():
    @T.prim_func
    def main(B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            tx = T.get_thread_binding()
            B[tx // 2] = 5
            B[tx // 2] = tx

    error = expect(r"race on B\[0\]: thread 1 writes, with another value than thread 0", main, [np.zeros(8, np.int32)])
    assert "B[tx // 2] = tx" in str(error)


def parallel_body(statement):
    @T.prim_func
    def main(A: T.Tensor((8, 4), "int32"), B: T.Tensor((8, 4), "int32")):
        with T.Kernel(1, threads=8):
            s = T.alloc_shared((8,), "int32")
            T.clear(s)
            for i, j in T.Parallel(8, 4):
                statement(A, B, s, i, j)

    return main


@T.macro
def shared_same_value(A, B, s, i, j):
    s[i] = A[i, 0]
    B[i, j] = s[i] + j


@T.macro
def shift_in_place(A, B, s, i, j):
    B[i, j] = B[i, 3 - j]


@T.macro
def different_values(A, B, s, i, j):
    s[i] = A[i, j]


@T.macro
def accumulate(A, B, s, i, j):
    s[i] = s[i] + 1


@T.macro
def read_after_foreign_write(A, B, s, i, j):
    if j == 0:
        s[i] = A[i, 0]
    B[i, j] = s[i]


@T.macro
def two_statements(A, B, s, i, j):
    if j == 0:
        s[i] = 1
    if j == 1:
        s[i] = 2


def test_equal_values_from_several_iterations_are_no_race():
    a, b = np.arange(32, dtype=np.int32).reshape(8, 4), np.zeros((8, 4), np.int32)
    run(parallel_body(shared_same_value), [a, b])
    np.testing.assert_array_equal(b, a[:, :1] + np.arange(4))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (shift_in_place, r"race on B\[0, 0\]: iteration \(0, 0\) writes what was read by iteration \(0, 3\)"),
        (different_values, r"race on s\[0\]: iteration \(0, 1\) writes, with another value than iteration \(0, 0\)"),
        (accumulate, r"race on s\[0\]: iteration \(0, \d\) writes what was read by iteration \(0, \d\)"),
        (read_after_foreign_write, r"race on s\[0\]: iteration \(0, 1\) reads what was written by iteration \(0, 0\)"),
        (two_statements, r"race on s\[0\]: iteration \(0, 1\) writes, with another value than iteration \(0, 0\)"),
    ],
)
def test_races_of_parallel_iterations(statement, message):
    a, b = np.arange(32, dtype=np.int32).reshape(8, 4), np.zeros((8, 4), np.int32)
    with pytest.raises(InterpreterError, match=message):
        run(parallel_body(statement), [a, b])


def test_serial_steps_of_one_iteration_may_depend_on_each_other():
    @T.prim_func
    def main(B: T.Tensor((4, 8), "int32")):
        with T.Kernel(1, threads=4):
            for i in T.Parallel(4):
                B[i, 0] = i
                for k in T.serial(7):
                    B[i, k + 1] = B[i, k] + 1

    b = np.zeros((4, 8), np.int32)
    run(main, [b])
    np.testing.assert_array_equal(b, np.add.outer(np.arange(4), np.arange(8)))


def test_a_race_is_seen_through_a_view():
    @T.prim_func
    def main(B: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=4):
            raw = T.alloc_shared((8,), "uint8")
            T.clear(raw)
            wide = T.view(raw, (2,), "int32")
            for i in T.Parallel(4):
                raw[i * 2] = i
                B[i] = wide[i // 2]

    error = expect("race on wide", main, [np.zeros(4, np.int32)], "B[i] = wide")
    assert "reads what was written by" in str(error)
