"""Allocation by every spelling, views of the same storage, scratch between kernels."""

import numpy as np
import pytest

import tilelang.language as T
from tilelang.errors import InvalidArgument, MissingDtype, ViewMismatch
from tilelang.interpreter import run

RNG = np.random.default_rng(0)
X = np.arange(32, dtype=np.float32).reshape(4, 8)


@pytest.mark.parametrize(
    "allocate",
    [
        lambda: T.alloc_shared((4, 8), "float16"),
        lambda: T.alloc_shared([4, 8], dtype="float16"),
        lambda: T.alloc_shared(4, 8, "float16"),
        lambda: T.alloc_shared(4, 8, dtype=T.float16),
        lambda: T.alloc_shared((4, 8), T.float16, "shared"),
        lambda: T.alloc_shared((4, 8), np.float16, scope="shared.dyn"),
        lambda: T.alloc_fragment((4, 8), "half"),
        lambda: T.alloc_fragments(4, 8, dtype="float16"),
        lambda: T.alloc_local([4, 8], "float16"),
        lambda: T.alloc_buffer((4, 8), "float16", scope="shared"),
    ],
)
def test_spellings_of_an_allocation(allocate):
    seen = []

    def kernel(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=32):
            seen.append(allocate())
            T.clear(A)

    T.prim_func(kernel)
    assert seen[0].shape == (4, 8)
    assert seen[0].dtype == "float16"


def test_swizzle_by_name():
    def kernel_with(layout):
        @T.prim_func
        def kernel(A: T.Tensor((8, 64), "float16"), B: T.Tensor((8, 64), "float16")):
            with T.Kernel(1, threads=32):
                tile = T.alloc_shared([8, 64], "float16", scope="shared.dyn", layout=layout)
                T.copy(A, tile)
                T.copy(tile, B)

        return kernel

    for layout in ("swizzle_128b", "swizzle_64b", "swizzle_32b"):
        a, b = RNG.random((8, 64)).astype(np.float16), np.zeros((8, 64), np.float16)
        run(kernel_with(layout), [a, b])
        np.testing.assert_array_equal(a, b)
    with pytest.raises(InvalidArgument, match="tile cannot have this layout"):
        kernel_with("swizzle_100b")


def test_torch_dtypes_are_dtypes():
    torch = pytest.importorskip("torch")

    @T.prim_func
    def kernel(A: T.Tensor((4, 8), torch.bfloat16)):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((4, 8), torch.float8_e4m3fn)
            T.copy(A, tile)

    assert "float8_e4m3fn" in kernel.script()


@pytest.mark.parametrize("name", ["alloc_shared", "alloc_fragment", "alloc_local", "alloc_global"])
def test_allocation_without_a_dtype_shows_the_repair(name):
    def kernel(A: T.Tensor((8,), "float32")):
        if name == "alloc_global":
            getattr(T, name)((4, 8))
        with T.Kernel(1):
            getattr(T, name)((4, 8))

    with pytest.raises(MissingDtype, match=rf'T.{name}\(\(4, 8\), "float16"\)'):
        T.prim_func(kernel)


def test_allocation_with_impossible_sizes():
    for shape in [(4, -1), (4, 2.0), (4, "8")]:

        def kernel(A: T.Tensor((8,), "float32")):
            with T.Kernel(1):
                T.alloc_shared(shape, dtype="float16")

        with pytest.raises(InvalidArgument, match="T.alloc_shared"):
            T.prim_func(kernel)


def test_reshape_and_view_share_storage():
    @T.prim_func
    def kernel(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4, 8), "float32"), C: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((4, 8), "float32")
            T.copy(A, tile)
            flat = T.reshape(tile, (32,))
            again = T.reshape(tile, 2, 16)
            flat[3] = 100
            again[1, 0] = 200
            bits = T.view(tile, (32,), "int32")
            T.copy(bits, C)
            halves = T.view(tile, (4, 16), "int16")
            halves[3, 14] = 0
            halves[3, 15] = 0
            T.copy(tile, B)

    b, c = np.zeros((4, 8), np.float32), np.zeros(32, np.int32)
    run(kernel, [X, b, c])
    expected = X.copy()
    expected[0, 3], expected[2, 0] = 100, 200
    np.testing.assert_array_equal(c, expected.view(np.int32).ravel())
    expected[3, 7] = 0
    np.testing.assert_array_equal(b, expected)


def test_view_of_a_parameter():
    @T.prim_func
    def kernel(A: T.Tensor((4, 8), "float32"), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            T.copy(T.reshape(A, (32,)), B)

    b = np.zeros(32, np.float32)
    run(kernel, [X, b])
    np.testing.assert_array_equal(b, X.ravel())


def test_view_of_another_size_is_an_error():
    def kernel(A: T.Tensor((4, 8), "float32")):
        with T.Kernel(1):
            T.view(A, (4, 8), "float16")

    with pytest.raises(ViewMismatch, match="a view of A asks for another number of bytes"):
        T.prim_func(kernel)


def test_local_memory_inside_parallel_is_of_one_iteration():
    @T.prim_func
    def kernel(A: T.Tensor((4, 8), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1, threads=8):
            for i in T.Parallel(4):
                total = T.alloc_var("float32", init=0)
                parts = T.alloc_local((2,), "float32")
                parts[0] = 0
                parts[1] = 0
                for j in T.serial(8):
                    parts[j % 2] += A[i, j]
                total = parts[0] + parts[1]
                B[i] = total

    b = np.zeros(4, np.float32)
    run(kernel, [X, b])
    np.testing.assert_array_equal(b, X.sum(1))


def test_several_kernels_run_in_order_with_scratch_between():
    m = T.dynamic("m")

    @T.prim_func
    def two_steps(A: T.Tensor((m, 8), "float32"), B: T.Tensor((m,), "float32")):
        partial = T.alloc_global((m, 2), "float32")
        with T.Kernel(m, 2, threads=8) as (row, half):
            tile = T.alloc_fragment((4,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(A[row, half * 4], tile)
            T.reduce_sum(tile, total)
            partial[row, half] = total[0]
        with T.Kernel(m) as row:
            B[row] = partial[row, 0] * 10 + partial[row, 1]

    for rows in (1, 4):
        b = np.zeros(rows, np.float32)
        run(two_steps, [X[:rows].copy(), b])
        np.testing.assert_array_equal(b, X[:rows, :4].sum(1) * 10 + X[:rows, 4:].sum(1))


def test_kernel_with_an_empty_grid_launches_nothing():
    @T.prim_func
    def kernel(A: T.Tensor((8,), "float32")):
        with T.Kernel(0):
            T.clear(A)
        with T.Kernel(2) as bx:
            A[bx] = 1

    a = np.full(8, 5, np.float32)
    run(kernel, [a])
    np.testing.assert_array_equal(a, [1, 1, 5, 5, 5, 5, 5, 5])


def test_scratch_inside_a_kernel_is_an_error():
    def kernel(A: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            T.alloc_global((8,), "float32")

    with pytest.raises(InvalidArgument, match="T.alloc_global stands inside T.Kernel"):
        T.prim_func(kernel)
