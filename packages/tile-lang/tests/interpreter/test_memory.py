"""Bounds, initialization, views, packed and strided memory."""

import ml_dtypes
import numpy as np
import pytest

import tilelang.language as T
from tilelang.interpreter import InterpreterError, run


def test_elements_outside_read_zero_and_drop():
    @T.prim_func
    def main(A: T.Tensor((6,), "int32"), B: T.Tensor((6,), "int32")):
        with T.Kernel(1, threads=4):
            for i in T.Parallel(8):
                B[i + 1] = A[i - 2]

    a, b = np.arange(1, 7, dtype=np.int32), np.full(6, -1, np.int32)
    run(main, [a, b])
    np.testing.assert_array_equal(b, [-1, 0, 0, 1, 2, 3])


@pytest.mark.parametrize("scope", ["shared.dyn", "shared", "local.fragment", "local"])
def test_reading_what_nobody_wrote(scope):
    @T.prim_func
    def main(B: T.Tensor((4, 4), "int32")):
        with T.Kernel(1, threads=4):
            tile = T.alloc_buffer((4, 4), "int32", scope=scope)
            T.fill(tile[0:4, 0:3], 1)
            T.copy(tile[0:4, 0:3], B[0:4, 0:3])
            T.copy(tile, B)

    with pytest.raises(InterpreterError, match=r"tile\[0, 3\] is read, but nobody wrote it") as caught:
        run(main, [np.zeros((4, 4), np.int32)])
    assert caught.value.file == __file__
    assert "T.copy(tile, B)" in str(caught.value)


def test_unwritten_element_in_a_parallel_loop_names_the_iteration():
    @T.prim_func
    def main(B: T.Tensor((4,), "float16")):
        with T.Kernel(1, threads=4):
            s = T.alloc_shared((4,), "float16")
            for i in T.Parallel(4):
                if i != 2:
                    s[i] = 1
            for i in T.Parallel(4):
                B[i] = T.if_then_else(i != 2, s[i], 0)
            for i in T.Parallel(4):
                B[i] = s[i]

    b = np.zeros(4, np.float16)
    with pytest.raises(InterpreterError, match=r"s\[2\] is read, but nobody wrote it \(iteration 2\)"):
        run(main, [b])
    assert b.tolist() == [1, 1, 0, 1]


def test_memory_is_fresh_in_every_iteration():
    @T.prim_func
    def main(B: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=4):
            for k in T.serial(2):
                s = T.alloc_shared((4,), "int32")
                if k == 0:
                    T.clear(s)
                T.copy(s, B)

    with pytest.raises(InterpreterError, match=r"s\[0\] is read"):
        run(main, [np.zeros(4, np.int32)])


def test_views_share_bytes():
    @T.prim_func
    def main(A: T.Tensor((8,), "uint8"), B: T.Tensor((2,), "float32"), C: T.Tensor((2, 4), "uint8")):
        with T.Kernel(1, threads=4):
            raw = T.alloc_shared((8,), "uint8")
            T.copy(A, raw)
            floats = T.view(raw, (2,), "float32")
            T.copy(floats, B)
            square = T.reshape(raw, (2, 4))
            for i in T.Parallel(2):
                floats[i] = floats[i] * 2
            T.copy(square, C)

    values = np.asarray([1.5, -3], np.float32)
    b, c = np.zeros(2, np.float32), np.zeros((2, 4), np.uint8)
    run(main, [values.view(np.uint8), b, c])
    np.testing.assert_array_equal(b, values)
    np.testing.assert_array_equal(c.reshape(-1), (values * 2).view(np.uint8))


def test_a_view_knows_which_bytes_were_written():
    @T.prim_func
    def main(B: T.Tensor((2,), "float32")):
        with T.Kernel(1, threads=4):
            raw = T.alloc_shared((8,), "uint8")
            T.clear(raw[0:7])
            T.copy(T.view(raw, (2,), "float32"), B)

    with pytest.raises(InterpreterError, match=r"\[1\] is read, but nobody wrote it"):
        run(main, [np.zeros(2, np.float32)])


def pack4(codes):
    return (codes[..., 0::2] & 15) | ((codes[..., 1::2] & 15) << 4)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "float4_e2m1fn"])
def test_packed_elements(dtype):
    @T.prim_func
    def main(A: T.Tensor((4, 8), dtype), B: T.Tensor((4, 8), "float32"), C: T.Tensor((4, 8), dtype)):
        with T.Kernel(1, threads=4):
            tile = T.alloc_shared((4, 8), dtype)
            T.copy(A, tile)
            for i, j in T.Parallel(4, 8):
                B[i, j] = T.cast(tile[i, j], "float32")
            for i, j in T.Parallel(4, 8):
                C[i, j] = tile[3 - i, 7 - j]
            T.copy(tile[0:1, 1:4], C[0:1, 3:6])

    codes = (np.arange(32, dtype=np.uint8) % 16).reshape(4, 8)
    values = codes.view(getattr(ml_dtypes, dtype)).astype(np.float32)
    b, c = np.zeros((4, 8), np.float32), np.zeros((4, 4), np.uint8)
    run(main, [pack4(codes), b, c])
    np.testing.assert_array_equal(b, values)
    expected = codes[::-1, ::-1].copy()
    expected[0, 3:6] = codes[0, 1:4]
    np.testing.assert_array_equal(c, pack4(expected))


def test_packed_view_of_bytes():
    @T.prim_func
    def main(A: T.Tensor((4,), "uint8"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=4):
            raw = T.alloc_shared((4,), "uint8")
            T.copy(A, raw)
            nibbles = T.view(raw, (8,), "uint4")
            for i in T.Parallel(8):
                B[i] = T.cast(nibbles[i], "int32")

    b = np.zeros(8, np.int32)
    run(main, [np.asarray([0x10, 0x32, 0x54, 0x76], np.uint8), b])
    np.testing.assert_array_equal(b, np.arange(8))


def test_strided_arguments():
    @T.prim_func
    def main(A: T.StridedTensor((4, 6), (T.dynamic("s"), 2), "float32"), B: T.Tensor((4, 6), "float32")):
        with T.Kernel(1, threads=4):
            T.copy(A, B)
            for i, j in T.Parallel(4, 6):
                A[i, j] = A[i, j] + 1

    base = np.arange(80, dtype=np.float32).reshape(4, 20)
    a, before, b = base[:, 0:12:2], base.copy(), np.zeros((4, 6), np.float32)
    run(main, [a, b])
    np.testing.assert_array_equal(b, before[:, 0:12:2])
    before[:, 0:12:2] += 1
    np.testing.assert_array_equal(base, before)


def test_scratch_lives_between_kernels_and_starts_poisoned():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32"), C: T.Tensor((1,), "float32")):
        partial = T.alloc_global((9,), "float32")
        with T.Kernel(8, threads=1) as bx:
            partial[bx] = A[bx] * 2
        with T.Kernel(1, threads=8):
            T.copy(partial[0:8], B)
            C[0] = partial[8]

    a, b, c = np.arange(8, dtype=np.float32), np.zeros(8, np.float32), np.zeros(1, np.float32)
    run(main, [a, b, c])
    np.testing.assert_array_equal(b, a * 2)
    assert np.isnan(c[0])


def test_a_view_needs_contiguous_memory():
    @T.prim_func
    def main(A: T.Tensor((4, 4), "int32"), B: T.Tensor((16,), "int32")):
        with T.Kernel(1, threads=4):
            T.copy(T.reshape(A, (16,)), B)

    a, b = np.arange(16, dtype=np.int32).reshape(4, 4), np.zeros(16, np.int32)
    run(main, [a, b])
    np.testing.assert_array_equal(b, a.reshape(-1))
    with pytest.raises(InterpreterError, match="is a view of A, whose argument is not contiguous"):
        run(main, [a.T, b])
