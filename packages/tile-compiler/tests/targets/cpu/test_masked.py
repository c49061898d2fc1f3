"""What is left of a length that nobody knows: vectors of which some lanes are not there, with AVX2 where elements have four bytes
or more, else single iterations. No memory behind the last element is touched by either."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest
import torch

import tilelang
import tilelang.language as T
from tile_compiler.targets.cpu.features import host_features
from tilelang.target import Target

LENGTHS = (1, 7, 16, 17, 31, 100)
n = T.dynamic("n")


@pytest.fixture(params=["x86-64-v3", "x86-64-v4"])
def target(request):
    if request.param == "x86-64-v4" and host_features().vector_bits < 512:
        pytest.skip("this machine has no AVX-512")
    return Target("cpu", request.param)


@pytest.fixture
def at_the_end():
    """`at_the_end(shape, dtype)`: a tensor behind whose last element memory may neither be read nor written."""
    page, held = mmap.PAGESIZE, []

    def make(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        size = torch.empty(0, dtype=dtype).element_size() * int(np.prod(shape))
        whole = -(-size // page) * page
        pages = mmap.mmap(-1, whole + page)
        held.append(pages)
        bytes_ = np.frombuffer(pages, np.uint8)
        guard = ctypes.c_void_p(bytes_.ctypes.data + whole)
        assert ctypes.CDLL(None, use_errno=True).mprotect(guard, page, 0) == 0
        return torch.from_numpy(bytes_[whole - size : whole]).view(dtype).view(shape)

    return make


def given(tensor: torch.Tensor) -> torch.Tensor:
    values = torch.randint(-9, 10, tensor.shape, generator=torch.Generator().manual_seed(0))
    return tensor.copy_(values.abs() if tensor.dtype == torch.uint8 else values)


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64],
    ids=str,
)
def test_no_memory_behind_a_row_is_touched(dtype, target, at_the_end):
    name = str(dtype).removeprefix("torch.")

    @T.prim_func
    def twice(A: T.Tensor((n,), name), B: T.Tensor((n,), name)):
        with T.Kernel(1, threads=1):
            for j in T.Parallel(n):
                B[j] = A[j] + A[j]

    kernel = tilelang.compile(twice, target=target)
    for length in LENGTHS:
        a, b = given(at_the_end((length,), dtype)), at_the_end((length,), dtype)
        kernel(a, b)
        assert torch.equal(b, a + a)


def test_rows_of_a_matrix_end_where_the_next_begin(target, at_the_end):
    """What lies behind a row and belongs to another block stays as it is, too; a sum over rows is a loop in lanes."""

    @T.prim_func
    def sums(A: T.Tensor((3, n), "float32"), scale: T.Tensor((4,), "float32"), B: T.Tensor((4, n), "float32")):
        with T.Kernel(4, threads=1) as block:
            for j in T.Parallel(n):
                total = T.alloc_local((1,), "float32")
                total[0] = 0.0
                for i in T.serial(3):
                    total[0] += A[i, j] * scale[block]
                if block != 1:
                    B[block, j] = total[0]

    kernel = tilelang.compile(sums, target=target)
    for length in LENGTHS:
        a, b = given(at_the_end((3, length), torch.float32)), given(at_the_end((4, length), torch.float32))
        scale = given(at_the_end((4,), torch.float32))
        expected = scale[:, None] * a.sum(0)
        expected[1] = b[1]
        kernel(a, scale, b)
        torch.testing.assert_close(b, expected)


def test_lanes_that_are_not_there_divide_by_nothing(target, at_the_end):
    @T.prim_func
    def quotients(A: T.Tensor((n,), "int32"), D: T.Tensor((n,), "int32"), B: T.Tensor((n,), "int32")):
        with T.Kernel(1, threads=1):
            for j in T.Parallel(n):
                B[j] = A[j] // D[j]

    kernel = tilelang.compile(quotients, target=target)
    for length in LENGTHS:
        a, d, b = (at_the_end((length,), torch.int32) for _ in "adb")
        given(a)
        d.fill_(-3)
        kernel(a, d, b)
        assert torch.equal(b, torch.div(a, d, rounding_mode="floor"))


def test_elements_apart_are_not_read_in_vectors(target, at_the_end):
    """Every second one, and those that a table's codes say: one by one, to the last that is there."""

    @T.prim_func
    def picked(A: T.Tensor((2 * n,), "float32"), codes: T.Tensor((n,), "uint8"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=1):
            table = T.alloc_shared((16,), "float32")
            for c in T.Parallel(16):
                table[c] = T.cast(c * c, "float32")
            for j in T.Parallel(n):
                B[j] = A[2 * j] + table[T.cast(codes[j] & T.uint8(15), "int32")]

    kernel = tilelang.compile(picked, target=target)
    for length in LENGTHS:
        a, codes, b = (
            given(at_the_end((2 * length,), torch.float32)),
            given(at_the_end((length,), torch.uint8)),
            at_the_end((length,), torch.float32),
        )
        kernel(a, codes, b)
        assert torch.equal(b, a[::2] + (codes & 15).float() ** 2)


def test_tiles_whose_rows_end_anywhere(target, at_the_end):
    """Copies to and from tiles, which fill what is not there, and sums of their rows."""

    @T.prim_func
    def centered(A: T.Tensor((5, n), "bfloat16"), B: T.Tensor((5, n), "bfloat16")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_fragment((8, 128), "float32")
            total = T.alloc_fragment((8,), "float32")
            T.copy(A[0, 0], tile)
            T.reduce_sum(tile, total, dim=1)
            for i, j in T.Parallel(8, 128):
                tile[i, j] -= total[i]
            T.copy(tile, B[0, 0])

    kernel = tilelang.compile(centered, target=target)
    for length in LENGTHS:
        a, b = given(at_the_end((5, length), torch.bfloat16)), at_the_end((5, length), torch.bfloat16)
        kernel(a, b)
        torch.testing.assert_close(b, (a.float() - a.float().sum(1, keepdim=True)).bfloat16())


@pytest.mark.parametrize("function", ["erf", "exp", "chosen", "libm"])
def test_rows_keep_what_functions_make_of_them(function, target, at_the_end):
    """Of last rows first: nothing of a row is written where the next one begins, whatever code is made of a function. Of some
    there are no vectors, and what is made of their lanes is a loop."""
    functions = {
        "erf": (T.erf, torch.erf),
        "exp": (T.exp, torch.exp),
        "chosen": (lambda x: T.if_then_else(x > 0.0, T.erf(x), x), lambda x: torch.where(x > 0, torch.erf(x), x)),
        "libm": (T.cos, torch.cos),
    }
    ours, theirs = functions[function]

    @T.prim_func
    def kernel(A: T.Tensor((3, n), "float32"), B: T.Tensor((3, n), "float32")):
        with T.Kernel(1, threads=1):
            tile = T.alloc_fragment((3, 24), "float32")
            T.clear(tile)
            for r in T.serial(3):
                for j in T.Parallel(n):
                    x = A[2 - r, j] * 0.125
                    B[2 - r, j] = ours(x) + x
                for j in T.Parallel(T.min(n, 24)):
                    x = A[2 - r, j] * 0.125
                    tile[2 - r, j] = ours(x) + x
            for i, j in T.Parallel(3, T.min(n, 24)):
                B[i, j] -= tile[i, j]

    compiled = tilelang.compile(kernel, target=target)
    for length in LENGTHS:
        a, b = given(at_the_end((3, length), torch.float32)), at_the_end((3, length), torch.float32)
        compiled(a, b)
        expected = theirs(a * 0.125) + a * 0.125
        expected[:, :24] = 0
        torch.testing.assert_close(b, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("arch", "dtype", "masked"),
    [
        ("x86-64-v4", "float32", True),
        ("x86-64-v4", "int8", True),
        ("x86-64-v3", "float32", True),
        ("x86-64-v3", "float64", True),
        ("x86-64-v3", "bfloat16", False),
    ],
)
def test_what_is_left_is_one_vector_where_vectors_have_masks(arch, dtype, masked):
    @T.prim_func
    def kernel(A: T.Tensor((n,), dtype), B: T.Tensor((n,), dtype)):
        with T.Kernel(1, threads=1):
            for j in T.Parallel(n):
                B[j] = A[j] + A[j]

    text = tilelang.compile(kernel, target=Target("cpu", arch)).get_kernel_source()
    assert ("if j < j_left:" in text) is masked
    assert ("B[j_done + j] = " in text) or not masked
