"""Elements of less than a byte, and vectors, on GPUs: interpreter and emulator agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.errors import UnsupportedOnTarget
from tilelang.ir import dtypes

CUDA = "cuda -arch=sm_80"


def agree(func: Any, arguments: list[Any]) -> None:
    """The arguments hold the same after an interpreted and an emulated call."""
    results = []
    for target, execution in (("cpu", "interpret"), (CUDA, "emulate")):
        copies = [a.copy() for a in arguments]
        tilelang.compile(func, target=target, execution=execution)(*copies)
        results.append(copies)
    for want, have in zip(*results):
        np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "uint2", "int1", "uint1", "float4_e2m1fn"])
@pytest.mark.parametrize(("rows", "columns"), [(64, 128), (50, 64)])
def test_packed_tiles_are_copied_and_converted(rng: Any, dtype: str, rows: int, columns: int) -> None:
    @T.prim_func
    def main(
        A: T.Tensor((rows, columns), dtype),
        C: T.Tensor((rows, columns), "float16"),
        B: T.Tensor((rows, columns), dtype),
    ):
        with T.Kernel(T.ceildiv(rows, 32), threads=128) as bx:
            tile = T.alloc_shared((32, columns), dtype)
            wide = T.alloc_fragment((32, columns), "float16")
            T.copy(A[bx * 32, 0], tile)
            for i, j in T.Parallel(32, columns):
                wide[i, j] = T.cast(tile[i, j], "float16") * 2
            T.copy(wide, C[bx * 32, 0])
            for i, j in T.Parallel(32, columns):
                tile[i, j] = tile[i, j] + tile[i, j]
            T.copy(tile, B[bx * 32, 0])

    packed = (rows, columns * dtypes.dtype_of(dtype).bits // 8)
    a = rng.integers(0, 256, packed).astype(np.uint8)
    agree(main, [a, np.zeros((rows, columns), np.float16), np.zeros_like(a)])


def test_pipelined_copies_of_packed_tiles_are_asynchronous(rng: Any) -> None:
    @T.prim_func
    def main(A: T.Tensor((64, 256), "int4"), C: T.Tensor((64, 64), "int32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "int4")
            total = T.alloc_fragment((64, 64), "int32")
            T.clear(total)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[:, k * 64 : (k + 1) * 64], tile)
                for i, j in T.Parallel(64, 64):
                    total[i, j] += T.cast(tile[i, j], "int32")
            T.copy(total, C)

    assert "tl::cp_async<16>" in tilelang.compile(main, target=CUDA).get_kernel_source()
    agree(main, [rng.integers(0, 256, (64, 128)).astype(np.uint8), np.zeros((64, 64), np.int32)])


def test_two_threads_never_store_to_one_byte(rng: Any) -> None:
    @T.prim_func
    def main(A: T.Tensor((64, 15), "float32"), B: T.Tensor((64, 15), "int4")):
        with T.Kernel(1, threads=128):
            T.copy(A, B)

    with pytest.raises(UnsupportedOnTarget, match="parts of the bytes of B"):
        tilelang.compile(main, target=CUDA)


def test_vectorized_moves_are_vectors_and_other_loops_are_unrolled(rng: Any) -> None:
    @T.prim_func
    def main(A: T.Tensor((1024,), "float16"), B: T.Tensor((1024,), "float16")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            x = T.alloc_local((8,), "float16")
            for v in T.vectorized(8):
                x[v] = A[tx * 8 + v]
            for v in T.vectorized(8):
                x[v] = x[v] * x[v]
            for v in T.vectorized(8):
                B[tx * 8 + v] = x[v]

    source = tilelang.compile(main, target=CUDA).get_kernel_source()
    assert source.count("tl::vec<tl::half_t, 8>") == 4
    agree(main, [rng.standard_normal(1024).astype(np.float16), np.zeros(1024, np.float16)])


def test_vectors_across_the_end_are_guarded(rng: Any) -> None:
    @T.prim_func
    def main(A: T.Tensor((100,), "float32"), B: T.Tensor((100,), "float32")):
        with T.Kernel(1, threads=32):
            tx = T.get_thread_binding()
            x = T.alloc_local((4,), "float32")
            for v in T.vectorized(4):
                x[v] = A[tx * 4 + v]
            for v in T.vectorized(4):
                B[tx * 4 + v] = x[v]

    agree(main, [rng.standard_normal(100).astype(np.float32), np.zeros(100, np.float32)])


def test_the_block_stores_one_element_of_a_fragment(rng: Any) -> None:
    @T.prim_func
    def main(A: T.Tensor((16, 32), "float32"), B: T.Tensor((16, 32), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_fragment((16, 32), "float32")
            T.copy(A, tile)
            tile[3, 5] = 7.5
            T.copy(tile, B)

    agree(main, [rng.standard_normal((16, 32)).astype(np.float32), np.zeros((16, 32), np.float32)])
