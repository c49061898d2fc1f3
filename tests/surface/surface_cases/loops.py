"""Loops and Python's control flow (surface.md a.4, b.4, c.9 to c.11)."""

import numpy as np

import tilelang.language as T
from surface_cases.case import Program, case, floats, ints


def counting(names, loop, reference=range(8)):
    """A case that marks the places that a loop visits, each once."""

    def program():
        @T.prim_func
        def main(n: T.int32, B: T.Tensor((16,), "int32")):
            with T.Kernel(1, threads=1):
                for i in loop(n):
                    B[i] += i + 1

        want = np.zeros(16)
        for i in reference:
            want[i] += i + 1
        return Program(main, [3, np.zeros(16, np.int32)], [want])

    case(*names, title=names[0])(program)


counting(["T.serial"], lambda n: T.serial(8))
counting(["T.Serial"], lambda n: T.Serial(8))
counting(["T.serial (start, stop)"], lambda n: T.serial(2, 8), range(2, 8))
counting(["T.serial (start, stop, step)"], lambda n: T.serial(1, 8, 3), range(1, 8, 3))
counting(["T.serial (negative step)"], lambda n: T.serial(9, 2, -3), range(9, 2, -3))
counting(["T.serial (dynamic bounds)"], lambda n: T.serial(n, 4 * n), range(3, 12))
counting(["T.serial (empty)"], lambda n: T.serial(n, 2), range(0))
counting(["T.serial (dynamic step)"], lambda n: T.serial(0, 16, n), range(0, 16, 3))
counting(["T.unroll"], lambda n: T.unroll(8))
counting(["T.unroll(explicit=)"], lambda n: T.unroll(8, explicit=True))
counting(["T.Unroll"], lambda n: T.Unroll(2, 8), range(2, 8))
counting(["T.vectorized"], lambda n: T.vectorized(8))
counting(["T.Vectorized"], lambda n: T.Vectorized(8))
counting(["T.vectorize"], lambda n: T.vectorize(8))
counting(["T.Parallel", "T.Parallel (one extent)"], lambda n: T.Parallel(8))
counting(["T.parallel"], lambda n: T.parallel(8))
counting(["T.Parallel (dynamic extent)"], lambda n: T.Parallel(4 * n), range(12))
counting(["T.Parallel(coalesced_width=)"], lambda n: T.Parallel(8, coalesced_width=4))
counting(["T.Parallel(loop_layout=)"], lambda n: T.Parallel(8, loop_layout=T.Fragment((8,), lambda i: (i, 0))))
counting(["T.Parallel(prefer_async=)"], lambda n: T.Parallel(8, prefer_async=True))
counting(["T.Parallel(annotations=)"], lambda n: T.Parallel(8, annotations={"note": 1}))
counting(["T.Pipelined (dynamic extent)"], lambda n: T.Pipelined(n, num_stages=2), range(3))
counting(["T.Pipelined (start, stop)"], lambda n: T.Pipelined(2, 8, num_stages=3), range(2, 8))
counting(["T.Pipelined (fewer iterations than stages)"], lambda n: T.Pipelined(1, num_stages=3), range(1))
counting(["T.Pipelined (no iterations)"], lambda n: T.Pipelined(0, num_stages=3), range(0))
counting(["T.Pipelined(annotations=)"], lambda n: T.Pipelined(8, annotations={"note": 1}))


@case("T.grid")
def grid():
    @T.prim_func
    def main(B: T.Tensor((3, 4), "int32")):
        with T.Kernel(1, threads=1):
            for i, j in T.grid(3, 4):
                B[i, j] = 10 * i + j

    return Program(main, [], [10 * np.arange(3)[:, None] + np.arange(4)])


@case("T.Parallel (several extents)")
def parallel_extents():
    @T.prim_func
    def main(A: T.Tensor((2, 3, 4), "float32"), B: T.Tensor((2, 3, 4), "float32"), C: T.Tensor((2, 2, 3, 4), "int32")):
        with T.Kernel(1, threads=8):
            for i, j, k in T.Parallel(2, 3, 4):
                B[i, j, k] = T.max(A[i, j, k], 0)
            for i, j, k, m in T.Parallel(2, 2, 3, 4):
                C[i, j, k, m] = i + j + k + m

    a = floats(2, 3, 4)
    return Program(main, [a], [np.maximum(a, 0), np.indices((2, 2, 3, 4)).sum(0)])


@case("T.Pipelined", "T.Pipelined(num_stages=)")
def pipelined():
    @T.prim_func
    def main(A: T.Tensor((10, 8), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((2, 8), "float32")
            total = T.alloc_fragment((8,), "float32")
            T.clear(total)
            for k in T.Pipelined(5, num_stages=3):
                T.copy(A[2 * k, 0], tile)
                for j in T.Parallel(8):
                    total[j] += tile[0, j] * tile[1, j]
            T.copy(total, B)

    a = floats(10, 8)
    return Program(main, [a], [(a[::2] * a[1::2]).sum(0)], rtol=1e-5, atol=1e-5)


@case("T.Pipelined(order=, stage=)")
def pipeline_by_hand():
    @T.prim_func
    def main(A: T.Tensor((10, 8), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((2, 8), "float32")
            total = T.alloc_fragment((8,), "float32")
            T.clear(total)
            for k in T.Pipelined(5, order=[0, 1], stage=[0, 1]):
                T.copy(A[2 * k, 0], tile)
                for j in T.Parallel(8):
                    total[j] += tile[0, j] * tile[1, j]
            T.copy(total, B)

    a = floats(10, 8)
    return Program(main, [a], [(a[::2] * a[1::2]).sum(0)], rtol=1e-5, atol=1e-5)


@case("T.Persistent", "T.Persistent(group_size=)")
def persistent():
    @T.prim_func
    def main(A: T.Tensor((5, 3), "int32"), B: T.Tensor((15,), "int32")):
        with T.Kernel(4, threads=1) as block:
            for i, j in T.Persistent([5, 3], 4, block, group_size=2):
                A[i, j] += 10 * i + j
            for n in T.Persistent([15], 4, block):
                B[n] += n

    zeros = [np.zeros((5, 3), np.int32), np.zeros(15, np.int32)]
    return Program(main, zeros, [10 * np.arange(5)[:, None] + np.arange(3), np.arange(15)])


# -- Python's own ---------------------------------------------------------------------------------------------


@case("range")
def python_range():
    @T.prim_func
    def main(n: T.int32, B: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=1):
            for i in range(n, 16, 4):
                B[i] = i
            for i in range(2):
                B[i] = -i - 1

    want = np.zeros(16)
    want[3::4] = np.arange(3, 16, 4)
    want[:2] = [-1, -2]
    return Program(main, [3, np.zeros(16, np.int32)], [want])


@case("if / elif / else on run-time values")
def branches():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            for i in T.serial(8):
                if A[i] > 4:
                    B[i] = 1
                elif A[i] < -4:
                    B[i] = 2
                else:
                    B[i] = 3

    a = ints(8)
    return Program(main, [a], [np.where(a > 4, 1, np.where(a < -4, 2, 3))])


@case("if on compile-time values")
def static_branches():
    def build(double):
        @T.prim_func
        def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=1):
                for i in T.serial(8):
                    if double:
                        B[i] = A[i] * 2
                    else:
                        B[i] = A[i]

        return main

    a = ints(8)
    return Program(build(True), [a], [a * 2])


@case("while, break, continue")
def while_loops():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((3,), "int32")):
        with T.Kernel(1, threads=1):
            i = T.alloc_var("int32", init=0)
            total = T.alloc_var("int32", init=0)
            while i < 8:
                i += 1
                if A[i - 1] < 0:
                    continue
                total += A[i - 1]
                if total > 12:
                    break
            B[0] = total
            B[1] = i
            last = T.alloc_var("int32", init=-1)
            for k in T.serial(8):
                if A[k] < 0:
                    continue
                last = k
                if k >= 5:
                    break
            B[2] = last

    a = ints(8, seed=3)
    i = total = 0
    while i < 8:
        i += 1
        if a[i - 1] < 0:
            continue
        total += a[i - 1]
        if total > 12:
            break
    last = -1
    for k in range(8):
        if a[k] < 0:
            continue
        last = k
        if k >= 5:
            break
    return Program(main, [a], [np.array([total, i, last])])


@case("ternaries and chained comparisons")
def expressions():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                inside = -3 < A[i] <= 5
                B[i] = A[i] if inside and not A[i] == 2 else -100

    a = ints(8)
    return Program(main, [a], [np.where((a > -3) & (a <= 5) & (a != 2), a, -100)])


@case("helper functions, closures, Python lists")
def whole_python():
    weights = [2, 3, 5]

    def weighted(x, factor):
        return x * factor

    @T.prim_func
    def main(A: T.Tensor((3, 8), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            total = T.alloc_fragment((8,), "int32")
            T.clear(total)
            for row, weight in enumerate(weights):
                for j in T.Parallel(8):
                    total[j] += weighted(A[row, j], weight)
            parts = {"first": 1, "second": sum(w for w in weights)}
            for j in T.Parallel(8):
                B[j] = total[j] + parts["second"]

    a = ints(3, 8)
    return Program(main, [a], [np.array([2, 3, 5]) @ a + 10])


@case("x = expr binds, x: T.int32 = expr")
def bindings():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            for i in T.serial(8):
                x = A[i]
                y: T.int32 = x * 2
                B[i] = x
                x = x + y
                B[i] += x

    a = ints(8)
    return Program(main, [a], [a + a + 2 * a])
