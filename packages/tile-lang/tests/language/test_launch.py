"""T.Kernel, what a block knows of itself, T.Persistent, T.Pipelined, hints, printing, other languages."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilelang.language as T
from tilelang.errors import InvalidArgument, InvalidThreads, PipelineError
from tilelang.interpreter import externs, run
from tilelang.ir import tile_ir


@pytest.mark.parametrize("grid", [(3,), (3, 2), (3, 2, 4)])
def test_grid_of_one_to_three_axes(grid):
    shape = tuple(reversed(grid))

    @T.prim_func
    def kernel(A: T.Tensor(shape, "int32")):
        with T.Kernel(*grid) as block:
            axes = (block,) if len(grid) == 1 else block
            A[tuple(reversed(axes))] = sum(10**p * b for p, b in enumerate(axes)) + 1

    a = np.zeros(shape, np.int32)
    run(kernel, [a])
    for index in itertools.product(*map(range, shape)):
        assert a[index] == 1 + sum(10**p * b for p, b in enumerate(reversed(index)))


def test_one_grid_axis_also_unpacks():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32")):
        with T.Kernel(4) as (bx,):
            A[bx] = bx

    a = np.zeros(4, np.int32)
    run(kernel, [a])
    np.testing.assert_array_equal(a, [0, 1, 2, 3])


def test_threads_as_a_number_a_tuple_or_left_out():
    counts = {}

    def kernel_with(threads):
        @T.prim_func
        def kernel(A: T.Tensor((4,), "int32")):
            with T.Kernel(1, threads=threads):
                T.clear(A)

        return tile_ir.kernels(kernel)[0]

    for threads, total in [(None, None), (128, 128), ((4, 8), 32), ([2, 2, 2], 8)]:
        counts[str(threads)] = kernel_with(threads).num_threads
        assert counts[str(threads)] == total


@pytest.mark.parametrize("threads", [0, -32, 1.5, (1, 2, 3, 4)])
def test_impossible_threads_are_an_error(threads):
    def kernel(A: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=threads):
            T.clear(A)

    with pytest.raises(InvalidThreads):
        T.prim_func(kernel)


def test_thread_and_block_indices_and_extents():
    @T.prim_func
    def kernel(A: T.Tensor((2, 3, 8, 4), "int32")):
        with T.Kernel(3, 2, threads=(4, 8)) as (bx, by):
            tx, ty, tz = T.get_thread_bindings()
            assert tz == 0
            assert T.get_thread_extent(0) == 4
            assert T.get_thread_extent(2) == 1
            assert T.get_block_extent(0) == 3
            A[T.get_block_binding(1), bx, ty, tx] = T.get_thread_binding(0) + 10 * ty

    a = np.zeros((2, 3, 8, 4), np.int32)
    run(kernel, [a])
    np.testing.assert_array_equal(a, np.broadcast_to(np.arange(4) + 10 * np.arange(8)[:, None], a.shape))


def test_thread_binding_loop():
    @T.prim_func
    def kernel(A: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=8):
            for tx in T.thread_binding(0, 8, thread="threadIdx.x"):
                A[tx] = tx

    a = np.zeros(8, np.int32)
    run(kernel, [a])
    np.testing.assert_array_equal(a, np.arange(8))


@given(st.integers(1, 7), st.integers(1, 7), st.integers(1, 9), st.integers(1, 4))
def test_persistent_covers_each_tile_once(rows, columns, blocks, group):
    @T.prim_func
    def kernel(A: T.Tensor((rows, columns), "int32")):
        with T.Kernel(blocks) as block:
            for r, c in T.Persistent([rows, columns], blocks, block, group_size=group):
                A[r, c] = A[r, c] + 1

    a = np.zeros((rows, columns), np.int32)
    run(kernel, [a])
    assert (a == 1).all()


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 3))
def test_persistent_over_one_and_three_axes(n, blocks, k):
    @T.prim_func
    def kernel(A: T.Tensor((n,), "int32"), B: T.Tensor((n, 2, k), "int32")):
        with T.Kernel(blocks) as block:
            for i in T.Persistent(n, blocks, block):
                A[i] = A[i] + 1
            for i, j, l in T.Persistent((n, 2, k), blocks, block):
                B[i, j, l] = B[i, j, l] + 1

    a, b = np.zeros(n, np.int32), np.zeros((n, 2, k), np.int32)
    run(kernel, [a, b])
    assert (a == 1).all()
    assert (b == 1).all()


@pytest.mark.parametrize(
    "loop",
    [
        lambda n: T.Pipelined(n),
        lambda n: T.Pipelined(n, num_stages=3),
        lambda n: T.Pipelined(0, n, num_stages=1),
        lambda n: T.Pipelined(n, order=[0, 1], stage=[0, 1]),
        lambda n: T.Pipelined(n, num_stages=2, order=[], stage=[], sync=[], group=[]),
    ],
)
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_pipelined_means_the_plain_loop(loop, steps):
    @T.prim_func
    def kernel(n: T.int32, A: T.Tensor((5, 8), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=8):
            tile = T.alloc_shared((8,), "float32")
            total = T.alloc_fragment((8,), "float32")
            T.clear(total)
            for k in loop(n):
                T.copy(A[k, 0], tile)
                for i in T.Parallel(8):
                    total[i] += tile[i]
            T.copy(total, B)

    a, b = np.arange(40, dtype=np.float32).reshape(5, 8), np.zeros(8, np.float32)
    run(kernel, [steps, a, b])
    np.testing.assert_array_equal(b, a[:steps].sum(0))


@pytest.mark.parametrize(
    "arguments",
    [{"num_stages": -1}, {"num_stages": 1.5}, {"order": [0]}, {"stage": [0]}, {"order": [0, 1], "stage": [0]}],
)
def test_contradicting_pipeline_arguments_are_an_error(arguments):
    with pytest.raises(PipelineError):
        T.Pipelined(4, **arguments)


def test_pipelined_has_no_step():
    with pytest.raises(PipelineError, match="no step"):
        T.Pipelined(0, 8, 2)


def test_hints_change_nothing():
    @T.prim_func
    def kernel(A: T.Tensor((8, 8), "float16"), B: T.Tensor((8, 8), "float16")):
        with T.Kernel(1, threads=32):
            T.use_swizzle(10)
            T.use_swizzle(panel_size=4, order="col", enable=False)
            T.annotate_l2_hit_ratio({A: 0.5})
            T.annotate_min_blocks_per_sm(2)
            T.assume(A.shape[0] % 8 == 0)
            tile = T.alloc_shared((8, 8), "float16")
            T.annotate_layout({tile: T.make_swizzled_layout(tile)})
            T.sync_threads()
            T.copy(A, tile)
            T.copy(tile, B)

    a, b = np.random.default_rng(0).random((8, 8)).astype(np.float16), np.zeros((8, 8), np.float16)
    run(kernel, [a, b])
    np.testing.assert_array_equal(a, b)


def test_hint_errors():
    def order(A: T.Tensor((8, 8), "float16")):
        with T.Kernel(1):
            T.use_swizzle(4, order="diagonal")

    def panel(A: T.Tensor((8, 8), "float16")):
        with T.Kernel(1):
            T.use_swizzle(0)

    for function in (order, panel):
        with pytest.raises(InvalidArgument, match="T.use_swizzle"):
            T.prim_func(function)


def test_print_of_tiles_elements_and_scalars():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            count = T.alloc_var("int32", init=3)
            T.print(A)
            T.print(A[1], msg="second")
            T.print(count)

    lines = []
    run(kernel, [np.float32([1, 2.5, 3, 4])], output=lines.append)
    text = "\n".join(lines)
    assert "2.5" in text
    assert "second" in text
    assert "A" in lines[0]
    assert len(lines) >= 3


@pytest.fixture
def clean_externs():
    before = dict(externs)
    yield
    externs.clear()
    externs.update(before)


@pytest.mark.usefixtures("clean_externs")
def test_external_functions_run_by_their_meaning():
    source = "extern float scale(float x, int n) { return x * n; }"

    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=4):
            T.import_source(source, meaning={"scale": lambda x, n: x * n})
            for i in T.Parallel(4):
                B[i] = T.call_extern("float32", "scale", A[i], 3) + T.call_extern("scale", "float32", A[i], i)

    a, b = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    run(kernel, [a, b])
    np.testing.assert_array_equal(b, a * 3 + a * np.arange(4))


@pytest.mark.usefixtures("clean_externs")
def test_external_functions_take_addresses():
    def axpy(out, x, n):
        for i in range(int(n)):
            out.store(out.load(i) + 2 * x.load(i), i)

    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            T.call_extern("void", "axpy", T.access_ptr(B[2], "rw"), T.address_of(A), 4, meaning=axpy)

    a, b = np.arange(4, dtype=np.float32), np.ones(8, np.float32)
    run(kernel, [a, b])
    np.testing.assert_array_equal(b, [1, 1, 1, 3, 5, 7, 1, 1])


def test_vector_types_as_elements():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            v = T.alloc_local((1,), "float32x4")
            v[0] = T.float32x4(2)
            w = T.view(v, (4,), "float32")
            for i in T.serial(4):
                B[i] = A[i] * w[i]

    b = np.zeros(4, np.float32)
    run(kernel, [np.float32([1, 2, 3, 4]), b])
    np.testing.assert_array_equal(b, [2, 4, 6, 8])
