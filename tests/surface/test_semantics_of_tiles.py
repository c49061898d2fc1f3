"""What is easy to get wrong in a kernel: one section for each numbered item of surface.md (c) that belongs to batch 1."""

import numpy as np
import pytest
from surface_cases.case import floats, ints, positive

import tilelang
import tilelang.language as T
from tilelang.errors import (
    CopyShapeMismatch,
    GemmShapeMismatch,
    ParallelConflict,
    PipelineError,
    PrivateWriteInParallel,
    ReduceShapeMismatch,
    TileOperatorInParallel,
    UnsupportedConstruct,
)
from tilelang.interpreter import InterpreterError

# -- 1, 2: copies ---------------------------------------------------------------------------------------------


def test_1_a_point_takes_the_other_sides_extents(build):
    @T.prim_func
    def main(A: T.Tensor((3, 6, 9), "float32"), B: T.Tensor((4, 4), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((4, 4), "float32")  # missing extents of A become 1
            T.copy(A[1, 2, 5], tile)
            T.copy(tile, B)

    a = floats(3, 6, 9)
    np.testing.assert_array_equal(build(main, out_idx=-1)(a), a[1, 2:6, 5:9])


def test_1_equally_many_extents_match_in_order(build):
    @T.prim_func
    def main(
        A: T.Tensor((2, 8, 3, 4), "float32"), B: T.Tensor((4, 4), "float32"), C: T.Tensor((1, 4, 1, 4), "float32")
    ):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((4, 4), "float32")
            T.copy(A[1, 2:6, 1, :], tile)
            T.copy(tile, B)
            T.copy(tile, C)

    a = floats(2, 8, 3, 4)
    b, c = build(main, out_idx=[1, 2])(a)
    np.testing.assert_array_equal(b, a[1, 2:6, 1])
    np.testing.assert_array_equal(c, a[1:2, 2:6, 1:2])


def test_1_tails_are_unified(build):
    """Where numbers and slices mix, an extent of 1 takes the other side's: the number is an origin."""

    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32"), B: T.Tensor((4, 8), "float32")):
        with T.Kernel(1, threads=8):
            T.copy(A[2, 0:8], B)

    a = floats(8, 8)
    np.testing.assert_array_equal(build(main, out_idx=-1)(a), a[2:6])


def test_1_whole_buffers_must_have_equal_shapes():
    with pytest.raises(CopyShapeMismatch, match="the shapes differ"):

        @T.prim_func
        def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((8, 4), "float32")):
            with T.Kernel(1, threads=8):
                T.copy(A, B)


def test_1_two_points_are_a_store_of_every_thread(build):
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float16")):
        with T.Kernel(1, threads=8):
            tx = T.get_thread_binding()
            T.copy(A[7 - tx], B[tx])

    a = floats(8)
    np.testing.assert_array_equal(build(main, out_idx=-1)(a), a[::-1].astype(np.float16))


@pytest.mark.parametrize("first", ["shared", "local.fragment"])
@pytest.mark.parametrize("second", ["shared", "local.fragment"])
def test_2_copies_cast_between_any_scopes_and_are_synchronous(build, first, second):
    @T.prim_func
    def main(A: T.Tensor((16, 16), "float32"), B: T.Tensor((16, 16), "float16")):
        with T.Kernel(1, threads=32):
            x = T.alloc_buffer((16, 16), "float32", scope=first)
            y = T.alloc_buffer((16, 16), "bfloat16", scope=second)
            T.copy(A, x)
            T.copy(x, y)
            T.copy(y, B)

    a = floats(16, 16)
    want = a.astype(T.bfloat16.as_numpy()).astype(np.float16)
    np.testing.assert_array_equal(build(main, out_idx=-1)(a), want)


# -- 3, 4: indices --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 7, 8, 9, 100])
def test_3_loads_outside_give_zero_and_stores_outside_are_dropped(build, n):
    m = T.dynamic("m")

    @T.prim_func
    def main(A: T.Tensor((m,), "float32"), B: T.Tensor((m,), "float32"), C: T.Tensor((1,), "float32")):
        with T.Kernel(T.ceildiv(m, 8), threads=8) as bx:
            tile = T.alloc_shared((8,), "float32")
            T.copy(A[bx * 8], tile)
            for i in T.Parallel(8):
                B[bx * 8 + i] = tile[i] + A[bx * 8 + i + 1]
                T.atomic_add(C[i + bx], 1.0)  # one of them hits

    a = floats(n)
    b, c = np.zeros_like(a), np.zeros(1, np.float32)
    build(main)(a, b, c)
    np.testing.assert_array_equal(b, a + np.append(a[1:], 0).astype(np.float32))
    assert c[0] == 1


def test_3_the_safe_value_replaces_zero_and_is_cast(build):
    @T.prim_func
    def main(A: T.Tensor((5,), "float32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            T.annotate_safe_value({A: -7.5})
            tile = T.alloc_shared((8,), "int32")
            T.copy(A[0], tile)
            T.copy(tile, B)

    a = floats(5) * 4
    want = np.concatenate([np.trunc(a), np.full(3, -7)])
    np.testing.assert_array_equal(build(main, out_idx=-1)(a), want)


def test_4_negative_indices_and_steps(build):
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((6,), "float32")):
        with T.Kernel(1, threads=1):
            B[0] = A[-1]
            B[1] = A[-2]
            B[-1] = A[0]
            T.copy(A[0:6:2], B[2:5])

    a = floats(9)
    want = np.array([a[-1], a[-2], a[0], a[2], a[4], a[0]])
    np.testing.assert_array_equal(build(main, out_idx=-1)(a), want)


# -- 5: gemm --------------------------------------------------------------------------------------------------


def multiply(*, clear_accum=False, times=2):
    @T.prim_func
    def main(A: T.Tensor((16, 32), "float16"), B: T.Tensor((32, 16), "float16"), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((16, 32), "float16")
            b = T.alloc_shared((32, 16), "float16")
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 1)
            for k in T.serial(times):
                T.gemm(a, b, c, clear_accum=clear_accum if isinstance(clear_accum, bool) else k == 0)
            T.copy(c, C)

    return main


@pytest.mark.parametrize(
    ("clear_accum", "times", "offset"),
    [(False, 2, 1), (True, 1, 0), ("k == 0", 2, 0)],
    ids=["adds", "clears", "run time"],
)
def test_5_gemm_accumulates_unless_told_otherwise(build, clear_accum, times, offset):
    a, b = floats(16, 32, dtype=np.float16), floats(32, 16, dtype=np.float16, seed=1)
    got = build(multiply(clear_accum=clear_accum, times=times), out_idx=-1)(a, b)
    want = times * (a.astype(np.float64) @ b.astype(np.float64)) + offset
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_5_shapes_are_checked_with_upstreams_words():
    with pytest.raises(AssertionError, match="T.gemm K shape check failed: K_A = 32, K_B = 64") as caught:

        @T.prim_func
        def main(A: T.Tensor((16, 32), "float16")):
            with T.Kernel(1, threads=128):
                a = T.alloc_shared((16, 32), "float16")
                b = T.alloc_shared((64, 16), "float16")
                c = T.alloc_fragment((16, 16), "float32")
                T.gemm(a, b, c)

    assert isinstance(caught.value, GemmShapeMismatch)


# -- 8: reductions --------------------------------------------------------------------------------------------


def test_8_old_content_enters_once(build):
    """Also where a result is replicated over the threads that share a row."""

    @T.prim_func
    def main(A: T.Tensor((4, 64), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_fragment((4, 64), "float32")
            total = T.alloc_fragment((4,), "float32")
            T.copy(A, tile)
            T.fill(total, 100)
            T.reduce_sum(tile, total, dim=1, clear=False)
            for i, j in T.Parallel(4, 64):
                tile[i, j] = tile[i, j] + total[i]
            T.reduce_max(tile, total, dim=1, clear=False)
            T.copy(total, B)

    a = positive(4, 64)
    total = 100 + a.astype(np.float64).sum(1)
    np.testing.assert_allclose(build(main, out_idx=-1)(a), total + a.max(1), rtol=1e-5)


def test_8_integers_start_at_the_types_limits(build):
    @T.prim_func
    def main(A: T.Tensor((2, 4), "int8"), B: T.Tensor((2, 2), "int8")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_fragment((2, 4), "int8")
            out = T.alloc_fragment((2,), "int8")
            T.copy(A, tile)
            T.reduce_max(tile, out, dim=1)
            T.copy(out, B[0, :])
            T.reduce_min(tile, out, dim=1)
            T.copy(out, B[1, :])

    a = np.array([[-128, -127, -128, -126], [127, 126, 127, 127]], np.int8)
    np.testing.assert_array_equal(build(main, out_idx=-1)(a), np.stack([a.max(1), a.min(1)]))


def test_8_a_wrong_result_shape_names_both():
    with pytest.raises(ReduceShapeMismatch, match=r"tile \(4, 8\), out \(8,\)") as caught:

        @T.prim_func
        def main(A: T.Tensor((4, 8), "float32")):
            with T.Kernel(1, threads=8):
                tile = T.alloc_fragment((4, 8), "float32")
                out = T.alloc_fragment((8,), "float32")
                T.reduce_sum(tile, out, dim=1)

    assert isinstance(caught.value, ValueError)


# -- 9: pipelines ---------------------------------------------------------------------------------------------


def pipeline(**options):
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n, 8), "float32"), keep: T.Tensor((n,), "int32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((8,), "float32")
            total = T.alloc_fragment((8,), "float32")
            T.clear(total)
            for k in T.Pipelined(n, **options):
                if keep[k] != 0:
                    base = k * 1
                    T.copy(A[base, 0], tile)
                    for i in T.Parallel(8):
                        tile[i] = tile[i] * 2
                    for i in T.Parallel(8):
                        total[i] += tile[7 - i]
            T.copy(total, B)

    return main


@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("stages", [0, 1, 2, 4])
def test_9_a_pipeline_is_the_plain_loop(build, stages, n):
    a, keep = floats(n, 8), (np.arange(n) % 3 != 1).astype(np.int32)
    want = (2 * a[keep != 0, ::-1].astype(np.float64)).sum(0)
    got = build(pipeline(num_stages=stages), out_idx=-1)(a, keep)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_9_order_and_stage_come_together():
    with pytest.raises(PipelineError, match="only one of order and stage"):
        pipeline(order=[0, 1])
    with pytest.raises(PipelineError, match="differ in length"):
        pipeline(order=[0, 1], stage=[0])


def test_9_a_pipeline_without_consumers_compiles(build):
    @T.prim_func
    def main(A: T.Tensor((4, 8), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((8,), "float32")
            for k in T.Pipelined(1, 4, num_stages=2):
                T.copy(A[k, 0], tile)
            T.copy(A[0, 0:8], B)

    a = floats(4, 8)
    np.testing.assert_array_equal(build(main, out_idx=-1)(a), a[0])


# -- 10: parallel loops ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 7, 32, 128])
def test_10_extents_need_not_fit_the_threads(build, threads):
    @T.prim_func
    def main(A: T.Tensor((5, 9), "float32"), B: T.Tensor((5, 9), "float32")):
        with T.Kernel(1, threads=threads):
            tile = T.alloc_fragment((5, 9), "float32")
            scale = T.alloc_fragment((5,), "float32")
            T.copy(A, tile)
            T.reduce_max(tile, scale, dim=1)
            for i, j in T.Parallel(5, 9):
                tile[i, j] *= scale[i]
            T.copy(tile, B)

    a = floats(5, 9)
    np.testing.assert_array_equal(build(main, out_idx=-1)(a), a * a.max(1, keepdims=True))


def test_10_tile_operators_do_not_stand_in_parallel_loops():
    with pytest.raises(TileOperatorInParallel):

        @T.prim_func
        def main(A: T.Tensor((8, 8), "float32")):
            with T.Kernel(1, threads=8):
                tile = T.alloc_shared((8,), "float32")
                for i in T.Parallel(8):
                    T.copy(A[i, 0], tile)


def test_10_parallel_loops_do_not_nest():
    with pytest.raises(TileOperatorInParallel, match="inside T.Parallel"):

        @T.prim_func
        def main(A: T.Tensor((8, 8), "float32")):
            with T.Kernel(1, threads=8):
                for i in T.Parallel(8):
                    for j in T.Parallel(8):
                        A[i, j] = 0


def test_10_memory_of_a_thread_is_not_written_by_iterations():
    with pytest.raises(PrivateWriteInParallel):

        @T.prim_func
        def main(A: T.Tensor((8,), "float32")):
            with T.Kernel(1, threads=8):
                mine = T.alloc_local((8,), "float32")
                for i in T.Parallel(8):
                    mine[i] = A[i]


def test_10_several_iterations_may_not_write_one_place(build):
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            for i, j in T.Parallel(8, 4):
                A[i] = j

    with pytest.raises(ParallelConflict):
        build(main)


def test_10_an_undecidable_conflict_is_caught_when_it_happens():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(8):
                B[A[i]] = i

    kernel = tilelang.compile(main, out_idx=-1, target="cpu", execution="interpret")
    a = np.arange(8, dtype=np.int32)[::-1].copy()
    np.testing.assert_array_equal(kernel(a), a)  # a permutation: its own inverse
    a[3] = a[4]
    with pytest.raises(InterpreterError, match="race on B"):
        kernel(a)


# -- 11: scalars ----------------------------------------------------------------------------------------------


def test_11_a_name_is_bound_once_and_a_variable_changes(build):
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=1):
            x = A[0]
            A[0] = 100  # x keeps what it read
            y: T.int32 = x + 1
            v = T.alloc_var("int32", init=2)
            while v < 10 and v != 9:
                v = v * 2 - 1
            x = x + y
            B[0] = x
            B[1] = v
            B[2] = 1 if 0 < v <= 9 else 2
            B[3] = A[0]

    a = ints(8)
    b = np.zeros(4, np.int32)
    build(main)(a.copy(), b)
    np.testing.assert_array_equal(b, [2 * a[0] + 1, 9, 1, 100])


def test_11_compile_time_conditions_are_folded():
    flag = False

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=1):
            if flag:
                A[0] = undefined_name  # noqa: F821  (never traced)
            for i in range(4):
                A[i] = i

    assert "undefined_name" not in main.script()


def test_11_names_of_inner_loops_in_a_branch_are_not_carried(build):
    @T.prim_func
    def main(n: T.int32, A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            if n < 0:
                T.fill(A, -1)
            else:
                for _ in T.serial(n):
                    turns = T.alloc_var("int32", init=0)
                    while turns < 2:
                        turns += 1
                        for p in T.Parallel(8):
                            A[p] = A[p] + p

    a = ints(8)
    got = a.copy()
    build(main)(3, got)
    np.testing.assert_array_equal(got, a + 6 * np.arange(8))


def test_11_chained_assignment_is_refused():
    with pytest.raises(UnsupportedConstruct):

        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(1, threads=1):
                x = y = A[0]
                A[1] = x + y
