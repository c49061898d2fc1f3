"""What is easy to get wrong around a kernel (styles, calls, launches, tools): one section for each numbered item of surface.md
(c) that belongs to batch 1."""

import numpy as np
import pytest
from surface_cases.case import floats, ints

import tilelang
import tilelang.language as T
from tilelang.errors import (
    InvalidArgument,
    OutputError,
    UnboundDimension,
)

# -- 12: the two styles ---------------------------------------------------------------------------------------


def test_12_a_lazy_function_gives_a_kernel_an_eager_one_runs(jit):
    def factory(n):
        @T.prim_func
        def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
            with T.Kernel(1, threads=8):
                for i in T.Parallel(n):
                    B[i] = A[i] + 1

        return main

    def eager(A):
        (N,) = (T.const("N"),)
        A: T.Tensor[[N], T.float32]
        B = T.empty((N,), T.float32)
        with T.Kernel(1, threads=8):
            for i in T.Parallel(N):
                B[i] = A[i] + 1
        return B

    a = floats(8)
    lazy = jit(factory, out_idx=-1)
    assert lazy(8) is lazy(8)
    np.testing.assert_array_equal(lazy(8)(a), a + np.float32(1))
    np.testing.assert_array_equal(jit(eager)(a), a + np.float32(1))


def test_12_a_new_shape_recompiles_a_dynamic_one_does_not(jit, monkeypatch):
    from tilelang.frontend import eager

    traced = []
    trace = eager.trace_eager
    monkeypatch.setattr(eager, "trace_eager", lambda *args: traced.append(args) or trace(*args))

    @jit
    def double(A):
        N = T.const("N")
        rows = T.dynamic("rows")
        A: T.Tensor[[rows, N], T.float32]
        B = T.empty((rows, N), T.float32)
        with T.Kernel(rows, threads=8) as bx:
            for i in T.Parallel(N):
                B[bx, i] = A[bx, i] * 2
        return B

    for shape, count in (((2, 4), 1), ((3, 4), 1), ((9, 4), 1), ((2, 6), 2), ((5, 6), 2)):
        a = floats(*shape)
        np.testing.assert_array_equal(double(a), a * 2)
        assert len(traced) == count


def test_12_strides_are_bound_too(jit):
    @jit
    def gather(A):
        M, N, s, t = T.const("M N s t")
        A: T.StridedTensor[[M, N], [s, t], T.float32]
        B = T.empty((M, N), T.float32)
        with T.Kernel(M, threads=8) as bx:
            for j in T.Parallel(N):
                B[bx, j] = A[bx, j]
        return B

    whole = floats(6, 8)
    np.testing.assert_array_equal(gather(whole[::2, 1::3]), whole[::2, 1::3])
    np.testing.assert_array_equal(gather(whole.T), whole.T)


def test_12_out_idx_and_the_eager_style_exclude_each_other(jit):
    with pytest.raises(OutputError) as caught:

        @tilelang.jit(out_idx=[1])
        def eager(A):
            N = T.const("N")
            A: T.Tensor[[N], T.float32]
            with T.Kernel(1, threads=8):
                T.fill(A, 0)

    assert isinstance(caught.value, ValueError)


# -- 13: outputs ----------------------------------------------------------------------------------------------


def sum_and_difference():
    n = T.dynamic("n")

    @T.prim_func
    def main(
        S: T.Tensor((n,), "float32"),
        x: T.float32,
        A: T.Tensor((n,), "float32"),
        D: T.Tensor((n,), "float32"),
    ):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(n):
                S[i] = A[i] + x
                D[i] = A[i] - x

    return main


@pytest.mark.parametrize("out_idx", [[0, 3], [0, -1], [-4, -1]])
def test_13_outputs_are_allocated_and_returned(build, out_idx):
    """Also an output that stands before the input that gives its size."""
    a = floats(6)
    kernel = build(sum_and_difference(), out_idx=out_idx)
    total, difference = kernel(0.5, a)
    np.testing.assert_array_equal(total, a + np.float32(0.5))
    np.testing.assert_array_equal(difference, a - np.float32(0.5))


def test_13_named_outputs_may_be_passed(build):
    a, s, d = floats(6), np.zeros(6, np.float32), np.zeros(6, np.float32)
    kernel = build(sum_and_difference(), out_idx=[0, 3])
    total, difference = kernel(s, 0.5, a, d)
    assert total is s
    assert difference is d
    np.testing.assert_array_equal(s, a + np.float32(0.5))


def test_13_a_wrong_number_of_arguments(build):
    kernel = build(sum_and_difference(), out_idx=[0, 3])
    with pytest.raises(ValueError, match="Kernel expected 2 inputs, but 1 are provided"):
        kernel(0.5)


# -- 14: host checks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "text"),
    [
        (np.ones((4, 8), np.float32), "is expected to be float16"),
        (np.ones((8,), np.float16), "dim"),
        (np.ones((4, 9), np.float16), "shape"),
        (np.ones((8, 4), np.float16).T, "stride"),
    ],
    ids=["dtype", "rank", "shape", "strides"],
)
def test_14_arguments_are_checked(build, argument, text):
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float16"), B: T.Tensor((4, 8), "float16")):
        with T.Kernel(1, threads=8):
            T.copy(A, B)

    kernel = build(main, out_idx=-1)
    with pytest.raises((ValueError, TypeError, RuntimeError), match=text) as caught:
        kernel(argument)
    assert "A" in str(caught.value)


def test_14_one_unknown_is_solved_for(build):
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((2 * n + 1,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(n):
                B[i] = A[2 * i + 1]

    a = floats(7)
    np.testing.assert_array_equal(build(main, out_idx=-1)(a), a[1::2])
    with pytest.raises((ValueError, RuntimeError)):
        build(main, out_idx=-1)(floats(8))


def test_14_two_arguments_disagree(build):
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=8):
            T.copy(A[0:8], B[0:8])

    with pytest.raises((ValueError, RuntimeError), match="n"):
        build(main)(floats(8), floats(9))


# -- 15: launches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [0, -1, (4, 0), (2, 2, 2, 2), 1.5])
def test_15_impossible_threads(threads):
    with pytest.raises(ValueError, match="threads"):

        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=threads):
                T.clear(A)


def test_15_an_empty_grid_launches_nothing(build):
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(n, 2, threads=8) as (bx, by):
            B[bx] = 5

    b = ints(8)
    got = b.copy()
    build(main)(np.zeros(0, np.int32), got)
    np.testing.assert_array_equal(got, b)


# -- 16: CPU-style kernels ------------------------------------------------------------------------------------


def test_16_kernels_written_for_the_cpu(build):
    """No threads, memory of one thread, gemm and reductions on it."""

    @T.prim_func
    def main(A: T.Tensor((16, 16), "float32"), B: T.Tensor((16, 16), "float32"), C: T.Tensor((16,), "float32")):
        with T.Kernel(1) as bx:
            a = T.alloc_local((16, 16), "float32")
            b = T.alloc_local((16, 16), "float32")
            c = T.alloc_local((16, 16), "float32")
            rows = T.alloc_local((16,), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)
            T.reduce_sum(c, rows, dim=1)
            for i in T.serial(16):
                C[i] = rows[i]

    a, b = floats(16, 16), floats(16, 16, seed=1)
    want = (a.astype(np.float64) @ b.astype(np.float64)).sum(1)
    np.testing.assert_allclose(build(main, out_idx=-1)(a, b), want, rtol=1e-4, atol=1e-3)


# -- 18: atomics ----------------------------------------------------------------------------------------------


def test_18_the_old_value_is_taken_once(build):
    @T.prim_func
    def main(A: T.Tensor((1,), "int32"), B: T.Tensor((64,), "int32")):
        with T.Kernel(4, threads=16) as bx:
            for i in T.Parallel(16):
                old = T.atomic_add(A[0], 1, return_prev=True)
                B[old] = old + old  # each place once, in whatever order

    a, b = np.zeros(1, np.int32), np.full(64, -1, np.int32)
    build(main)(a, b)
    assert a[0] == 64
    np.testing.assert_array_equal(b, 2 * np.arange(64))


def test_18_values_are_cast_and_shared_memory_is_ready_afterwards(build):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32):
            bins = T.alloc_shared((4,), "int32")
            T.clear(bins)
            for i in T.Parallel(64):
                T.atomic_add(bins[i % 4], A[i])
            T.copy(bins, B)

    a = floats(64) * 10
    want = np.trunc(a).astype(int).reshape(16, 4).sum(0)
    np.testing.assert_array_equal(build(main, out_idx=-1)(a), want)


# -- 19: layouts ----------------------------------------------------------------------------------------------


def test_19_kinds_of_layouts_are_checked():
    def annotated(scope, layout):
        @T.prim_func
        def main(A: T.Tensor((4, 8), "float32")):
            with T.Kernel(1, threads=8):
                tile = T.alloc_buffer((4, 8), "float32", scope=scope)
                T.annotate_layout({tile: layout})

        return main

    with pytest.raises(InvalidArgument, match="wrong kind of layout"):
        annotated("local.fragment", T.Layout((4, 8), lambda i, j: i * 8 + j))
    with pytest.raises(ValueError, match="share one place"):
        annotated("shared", T.Layout((4, 8), lambda i, j: j))


# -- 20: several kernels --------------------------------------------------------------------------------------


def test_20_split_and_combine(build):
    """Partial sums and their logarithms of exponentials in one kernel, joined by the next."""

    @T.prim_func
    def main(A: T.Tensor((4, 32), "float32"), B: T.Tensor((1,), "float32")):
        largest = T.alloc_global((4,), "float32")
        total = T.alloc_global((4,), "float32")
        with T.Kernel(4, threads=32) as bx:
            tile = T.alloc_fragment((1, 32), "float32")
            row = T.alloc_fragment((1,), "float32")
            T.copy(A[bx, 0], tile)
            T.reduce_max(tile, row, dim=1)
            T.copy(row, largest[bx : bx + 1])
            for i, j in T.Parallel(1, 32):
                tile[i, j] = T.exp(tile[i, j] - row[i])
            T.reduce_sum(tile, row, dim=1)
            T.copy(row, total[bx : bx + 1])
        with T.Kernel(1, threads=32):
            high = T.alloc_var("float32", init=-T.infinity("float32"))
            joined = T.alloc_var("float32", init=0)
            for i in T.serial(4):
                high = T.max(high, largest[i])
            for i in T.serial(4):
                joined += total[i] * T.exp(largest[i] - high)
            B[0] = T.log(joined) + high

    a = floats(4, 32) * 4
    want = np.log(np.exp(a.astype(np.float64)).sum())
    np.testing.assert_allclose(build(main, out_idx=-1)(a), [want], rtol=1e-5)


# -- 21: dynamic shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 1), (16, 32), (17, 33), (50, 7)])
def test_21_dynamic_shapes_need_not_divide(build, shape):
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((m, n), "float32"), B: T.Tensor((n, m), "float32")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 16), threads=64) as (bx, by):
            tile = T.alloc_shared((16, 32), "float32")
            T.copy(A[by * 16, bx * 32], tile)
            for i, j in T.Parallel(16, 32):
                B[bx * 32 + j, by * 16 + i] = tile[i, j]

    a = floats(*shape)
    np.testing.assert_array_equal(build(main, out_idx=-1)(a), a.T)


def test_21_the_profiler_asks_for_sizes(build):
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, 8), threads=8) as bx:
            T.copy(A[bx * 8 : bx * 8 + 8], B[bx * 8 : bx * 8 + 8])

    profiler = build(main, out_idx=-1).get_profiler()
    with pytest.raises(UnboundDimension) as caught:
        profiler.do_bench(warmup=1, rep=1)
    assert isinstance(caught.value, ValueError)
    assert profiler.do_bench(dynamic_symbolic_constraints={"n": 20}, warmup=1, rep=1) > 0
    assert profiler.do_bench(input_tensors=[floats(20)], warmup=1, rep=1) > 0


# -- 22: timing and comparing ---------------------------------------------------------------------------------


def test_22_supplies_and_tolerated_mismatches(build):
    @T.prim_func
    def main(
        A: T.Tensor((200,), "float16"),
        I: T.Tensor((200,), "int8"),
        U: T.Tensor((200,), "uint8"),
        B: T.Tensor((200,), "float16"),
    ):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(200):
                B[i] = A[i] * I[i] + U[i]

    profiler = build(main, out_idx=-1).get_profiler(tilelang.TensorSupplyType.Auto)
    a, i, u = profiler.inputs()
    assert -1 <= a.min() < -0.5 < 0.5 < a.max() <= 1
    assert set(np.unique(i)) == {-2, -1, 0, 1, 2}
    assert set(np.unique(u)) == {0, 1, 2}

    def almost(a, i, u):
        result = a * i + u
        result[:2] += 100  # one in a hundred
        return result

    profiler.assert_allclose(almost)
    with pytest.raises(AssertionError):
        profiler.assert_allclose(almost, max_mismatched_ratio=0)


# -- 23: printing ---------------------------------------------------------------------------------------------


def test_23_print_from_one_thread_and_under_conditions(build, capfd):
    @T.prim_func
    def main(A: T.Tensor((2, 4), "float32")):
        with T.Kernel(2, threads=4) as bx:
            tile = T.alloc_fragment((4,), "float32")
            T.copy(A[bx, 0:4], tile)
            if bx == 1:
                T.print(tile, msg="second block")

    build(main)(np.array([[1, 2, 3, 4], [5.5, 6.5, 7.5, 8.5]], np.float32))
    text = capfd.readouterr().out
    assert "second block" in text
    assert all(x in text for x in ("5.5", "6.5", "7.5", "8.5"))
    assert text.count("8.5") == 1


# -- 24: rasterisation ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("panel", [1, 3, 10])
def test_24_the_order_of_blocks_changes_nothing(build, order, panel):
    @T.prim_func
    def main(A: T.Tensor((5, 7), "int32")):
        with T.Kernel(7, 5, threads=1) as (bx, by):
            T.use_swizzle(panel, order=order)
            A[by, bx] += by * 10 + bx

    a = ints(5, 7)
    got = a.copy()
    build(main)(got)
    np.testing.assert_array_equal(got, a + 10 * np.arange(5)[:, None] + np.arange(7))


# -- 25: types as objects -------------------------------------------------------------------------------------


def test_25_types_are_callable_and_come_in_three_kinds(build):
    import torch

    for dtype in ("float16", T.float16, torch.float16, np.float16):

        @T.prim_func
        def main(A: T.Tensor((8,), dtype), B: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=8):
                tile = T.alloc_shared((8,), dtype)
                T.copy(A, tile)
                for i in T.Parallel(8):
                    B[i] = T.float32(tile[i]) * T.float32(0.5)

        a = floats(8, dtype=np.float16)
        np.testing.assert_array_equal(build(main, out_idx=-1)(a), a.astype(np.float32) / 2)
    assert T.float32x4.lanes == 4
    assert T.bfloat16.as_torch() is torch.bfloat16
