"""Functions, their parameters, grids and threads (surface.md a.1)."""

import numpy as np

import tilelang.language as T
from surface_cases.case import Program, case, floats, ints, jit


@case("T.prim_func", "T.Tensor", "T.Kernel", "T.Kernel(threads=)", "T.ceildiv")
def prim_func():
    N = 100

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, 32), threads=32) as bx:
            for i in T.Parallel(32):
                B[bx * 32 + i] = A[bx * 32 + i] * 2

    a = floats(N)
    return Program(main, [a], [a * 2])


@case("T.Kernel(cluster_dims=)", "T.block_rank_in_cluster")
def blocks_in_clusters():
    @T.prim_func
    def main(A: T.Tensor((4, 4, 32), "float32"), B: T.Tensor((4, 4, 32), "float32")):
        with T.Kernel(4, 4, threads=32, cluster_dims=(2, 2, 1)) as (bx, by):
            for i in T.Parallel(32):
                B[by, bx, i] = A[by, bx, i] + T.block_rank_in_cluster()

    a = floats(4, 4, 32)
    x, y = np.arange(4, dtype=np.float32), np.arange(4, dtype=np.float32)[:, None]
    return Program(main, [a], [a + (x % 2 + y % 2 * 2)[:, :, None]])


@case("T.Buffer")
def buffer_annotation():
    @T.prim_func
    def main(A: T.Buffer((4, 8), "float16"), B: T.Buffer([4, 8], "float16")):
        with T.Kernel(1, threads=8):
            T.copy(A, B)

    a = floats(4, 8, dtype=np.float16)
    return Program(main, [a], [a])


@case("T.Tensor[[M, N], dtype]")
def tensor_in_brackets():
    @T.prim_func
    def main(A: T.Tensor[[4, 8], T.float16], B: T.Tensor[4, 8, T.float16]):
        with T.Kernel(1, threads=8):
            T.copy(A, B)

    a = floats(4, 8, dtype=np.float16)
    return Program(main, [a], [a])


@case("T.Tensor (bare annotation)", "T.Buffer (bare annotation)")
def bare_annotations(mode):
    @jit(mode)
    def double(A: T.Tensor, B: T.Buffer):
        with T.Kernel(1, threads=8):
            for i, j in T.Parallel(A.shape[0], A.shape[1]):
                B[i, j] = A[i, j] * 2

    for shape in ((4, 8), (3, 5)):
        a = floats(*shape)
        if mode == "traces":
            assert double.get_tir(a, a).attrs["global_symbol"] == "double"
            continue
        b = np.zeros_like(a)
        double(a, b)
        np.testing.assert_array_equal(b, a * 2)


@case("T.StridedTensor", "T.StridedTensor[[..], [..], dtype]")
def strided_tensor(mode):
    s0, s1 = T.dynamic("s0"), T.dynamic("s1")

    @T.prim_func
    def by_call(A: T.StridedTensor((4, 6), (s0, s1), "float32"), B: T.Tensor((4, 6), "float32")):
        with T.Kernel(1, threads=8):
            T.copy(A, B)

    @T.prim_func
    def in_brackets(A: T.StridedTensor[[4, 6], [12, 2], T.float32], B: T.Tensor((4, 6), "float32")):
        with T.Kernel(1, threads=8):
            T.copy(A, B)

    whole = floats(4, 12)
    for func in (by_call, in_brackets):
        strided_arguments(Program(func, [whole[:, ::2]], [whole[:, ::2]]), mode)


def strided_arguments(program, mode):
    """As Program.run, for arguments whose strides a copy would lose."""
    from surface_cases.case import build

    if mode == "traces":
        program.run(mode)
    else:
        got = build(program.func, mode, out_idx=-1)(*program.inputs)
        np.testing.assert_array_equal(got, program.want[0])


@case("T.Kernel (one axis: as bx, as (bx,))")
def kernel_one_axis():
    @T.prim_func
    def main(A: T.Tensor((2, 4), "int32")):
        with T.Kernel(4, threads=1) as bx:
            A[0, bx] = bx
        with T.Kernel(4, threads=1) as (bx,):
            A[1, bx] = bx + 1

    return Program(main, [np.zeros((2, 4), np.int32)], [np.stack([np.arange(4), np.arange(4) + 1])])


@case("T.Kernel (two axes)")
def kernel_two_axes():
    @T.prim_func
    def main(A: T.Tensor((3, 4), "int32")):
        with T.Kernel(4, 3, threads=1) as (bx, by):
            A[by, bx] = by * 10 + bx

    return Program(main, [], [np.arange(3)[:, None] * 10 + np.arange(4)])


@case("T.Kernel (three axes)", "T.Kernel (threads left out)")
def kernel_three_axes():
    @T.prim_func
    def main(A: T.Tensor((2, 3, 4), "int32")):
        with T.Kernel(4, 3, 2) as (bx, by, bz):
            A[bz, by, bx] = bz * 100 + by * 10 + bx

    want = np.arange(2)[:, None, None] * 100 + np.arange(3)[:, None] * 10 + np.arange(4)
    return Program(main, [], [want])


@case("T.Kernel(threads=) as a tuple", "T.get_thread_bindings", "T.get_thread_extent")
def kernel_thread_tuple():
    @T.prim_func
    def main(A: T.Tensor((2, 3, 4), "int32")):
        with T.Kernel(1, threads=(4, 3, 2)):
            tx, ty, tz = T.get_thread_bindings()
            A[tz, ty, tx] = tx + 10 * ty + 100 * tz + 1000 * T.get_thread_extent(1)

    want = np.arange(2)[:, None, None] * 100 + np.arange(3)[:, None] * 10 + np.arange(4) + 3000
    return Program(main, [], [want])


@case("T.Kernel (several in one function)", "T.alloc_global")
def several_kernels():
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((8,), "float32")):
        partial = T.alloc_global((2, 8), "float32")
        with T.Kernel(2, threads=8) as bx:
            for i in T.Parallel(8):
                partial[bx, i] = A[2 * bx, i] + A[2 * bx + 1, i]
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                B[i] = partial[0, i] * partial[1, i]

    a = floats(4, 8)
    return Program(main, [a], [(a[0] + a[1]) * (a[2] + a[3])])


@case("T.Kernel(prelude=)")
def kernel_prelude():
    @T.prim_func
    def main(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=4, prelude="// text above the kernel"):
            T.fill(A, 7)

    return Program(main, [], [np.full(4, 7)])


@case("T.Kernel (dynamic grid, extent 0)", "T.dynamic", "T.symbolic")
def dynamic_grid(mode):
    n, m = T.dynamic("n"), T.symbolic("m")

    @T.prim_func
    def main(A: T.Tensor((n, m), "int32"), B: T.Tensor((n, m), "int32")):
        with T.Kernel(T.ceildiv(n, 4), threads=4) as bx:
            for i, j in T.Parallel(4, m):
                B[bx * 4 + i, j] = A[bx * 4 + i, j] + m

    for shape in ((7, 3), (4, 1), (0, 3)):
        a = ints(*shape)
        Program(main, [a], [a + shape[1]]).run(mode)


@case("T.get_thread_binding", "T.get_block_binding", "T.get_block_bindings", "T.get_block_extent")
def bindings():
    @T.prim_func
    def main(A: T.Tensor((2, 3, 8), "int32")):
        with T.Kernel(3, 2, threads=8):
            tx, bx = T.get_thread_binding(), T.get_block_binding(0)
            _, by, _ = T.get_block_bindings()
            A[by, bx, tx] = tx + 10 * bx + 100 * by + 1000 * T.get_block_extent(0)

    want = np.arange(2)[:, None, None] * 100 + np.arange(3)[:, None] * 10 + np.arange(8) + 3000
    return Program(main, [], [want])


@case("T.thread_binding")
def thread_binding():
    @T.prim_func
    def main(A: T.Tensor((2, 8), "int32")):
        with T.Kernel(1, threads=8):
            for tx in T.thread_binding(8, "threadIdx.x"):
                A[0, tx] = tx * 2
            for tx in T.thread_binding(0, 8, thread="threadIdx.x"):
                A[1, tx] = tx * 3

    return Program(main, [], [np.stack([np.arange(8) * 2, np.arange(8) * 3])])


@case("T.sync_threads")
def sync_threads():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            s = T.alloc_shared((8,), "int32")
            tx = T.get_thread_binding()
            s[tx] = A[tx]
            T.sync_threads()
            B[tx] = s[7 - tx]

    a = ints(8)
    return Program(main, [a], [a[::-1]])


@case("scalar parameters (n: T.int32, x: T.float32)")
def scalar_parameters():
    @T.prim_func
    def main(n: T.int32, x: T.float32, B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                B[i] = T.if_then_else(i < n, x, -1.0)

    return Program(main, [3, 2.5], [np.where(np.arange(8) < 3, 2.5, -1)])


@case("T.macro")
def macro():
    @T.macro
    def scale(tile, factor):
        for i in T.Parallel(8):
            tile[i] = tile[i] * factor

    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_fragment((8,), "float32")
            T.copy(A, tile)
            scale(tile, 3)
            scale(tile, 0.5)
            T.copy(tile, B)

    a = floats(8)
    return Program(main, [a], [a * 3 * 0.5])


@case("T.PrimExpr")
def prim_expr():
    def twice(x: T.PrimExpr):
        return x + x

    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                B[i] = twice(A[i])

    a = ints(8)
    return Program(main, [a], [a * 2])


# -- the eager style ------------------------------------------------------------------------------------------


@case("T.const", "T.empty", "T.Tensor (annotation in the body)")
def eager_style(mode):
    @jit(mode)
    def add(A, B):
        M, N = T.const("M, N")
        A: T.Tensor[[M, N], T.float32]
        B: T.Tensor((M, N), T.float32)
        C = T.empty((M, N), T.float32)
        with T.Kernel(M, threads=8) as bx:
            for j in T.Parallel(N):
                C[bx, j] = A[bx, j] + B[bx, j]
        return C

    for shape in ((3, 8), (2, 5)):
        a, b = floats(*shape), floats(*shape, seed=1)
        if mode == "traces":
            add.get_tir(a, b)
        else:
            np.testing.assert_array_equal(add(a, b), a + b)


@case("T.const (literal with a type)")
def typed_literal():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=4):
            for i in T.Parallel(4):
                A[i] = T.const(0.1, "float16")

    return Program(main, [], [np.full(4, np.float16(0.1), np.float32)])


@case("T.Tensor([..], dtype) in an eager signature (paper B.2)")
def eager_signature(mode):
    M = 4

    @jit(mode)
    def double(A: T.Tensor([M, 8], "float32"), B: T.Tensor([M, 8], "float32")):
        with T.Kernel(M, threads=8) as bx:
            for j in T.Parallel(8):
                B[bx, j] = A[bx, j] * 2

    a = floats(4, 8)
    if mode == "traces":
        double.get_tir(a, a)
    else:
        b = np.zeros_like(a)
        double(a, b)
        np.testing.assert_array_equal(b, a * 2)
