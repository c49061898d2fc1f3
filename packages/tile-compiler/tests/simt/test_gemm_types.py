"""`T.gemm` in types of their own: sums in float16, operands of four bits; the printed text in the emulator."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T


def product(M: int, N: int, K: int, a: str, b: str, c: str, transpose_b: bool, block_k: int) -> Any:
    B_shape, B_tile = ((N, K), (64, block_k)) if transpose_b else ((K, N), (block_k, 64))

    @T.prim_func
    def main(A: T.Tensor((M, K), a), B: T.Tensor(B_shape, b), C: T.Tensor((M, N), c)):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128) as (bx, by):
            A_tile = T.alloc_shared((64, block_k), a)
            B_tile_ = T.alloc_shared(B_tile, b)
            acc = T.alloc_fragment((64, 64), c)
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_k), num_stages=2):
                T.copy(A[by * 64, k * block_k], A_tile)
                if transpose_b:
                    T.copy(B[bx * 64, k * block_k], B_tile_)
                else:
                    T.copy(B[k * block_k, bx * 64], B_tile_)
                T.gemm(A_tile, B_tile_, acc, transpose_B=transpose_b)
            T.copy(acc, C[by * 64, bx * 64])

    return main


@pytest.mark.parametrize(
    ("target", "used", "M", "N", "K"),
    [
        ("cuda -arch=sm_75", "tl::mma_m16n8k8_f16_f16", 50, 70, 90),
        ("cuda -arch=sm_80", "tl::mma_m16n8k16_f16_f16", 64, 64, 64),
        ("cuda -arch=sm_80", "tl::mma_m16n8k16_f16_f16", 50, 70, 90),
        ("hip -mcpu=gfx942", "tl::mfma_32x32x8_f32_f16", 50, 70, 90),  # has none that sums in float16
    ],
)
def test_c_of_float16_is_summed_in_float16_where_an_instruction_does(
    rng: Any, target: str, used: str, M: int, N: int, K: int
) -> None:
    func = product(M, N, K, "float16", "float16", "float16", False, 32)
    kernel = tilelang.compile(func, target=target, execution="emulate")
    assert used in kernel.get_kernel_source()
    A, B = (rng.standard_normal(shape).astype("float16") for shape in ((M, K), (K, N)))
    C = np.zeros((M, N), "float16")
    kernel(A, B, C)
    exact = A.astype("float64") @ B.astype("float64")
    # a rounding to float16 after each instruction, of sums whose typical size is sqrt(K)
    np.testing.assert_allclose(C.astype("float64"), exact, rtol=1e-2, atol=1e-2 * np.sqrt(K) / 2)


def test_c_of_bfloat16_is_summed_in_float32(lower: Any) -> None:
    _, ctx = lower(product(64, 64, 64, "bfloat16", "bfloat16", "bfloat16", False, 32))
    assert "summed in float32, rounded to bfloat16" in " ".join(text for _, text in ctx.report.notes)


def values(packed: np.ndarray[Any, Any], signed: bool) -> np.ndarray[Any, Any]:
    """The elements of four bits, low half first."""
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1).astype(np.int64)
    return np.where(codes > 7, codes - 16, codes) if signed else codes


@pytest.mark.parametrize(
    ("target", "a", "b", "transpose_b", "M", "N", "K"),
    [
        ("cuda -arch=sm_75", "int4", "uint4", False, 50, 70, 96),
        ("cuda -arch=sm_80", "int4", "int4", True, 64, 64, 128),
        ("cuda -arch=sm_80", "int4", "uint4", False, 50, 70, 96),
        ("cuda -arch=sm_80", "uint4", "int4", True, 50, 70, 96),
        ("hip -mcpu=gfx942", "uint4", "uint4", False, 50, 70, 96),  # has none
    ],
)
def test_products_of_four_bits(
    rng: Any, target: str, a: str, b: str, transpose_b: bool, M: int, N: int, K: int
) -> None:
    kernel = tilelang.compile(product(M, N, K, a, b, "int32", transpose_b, 64), target=target, execution="emulate")
    found = set(re.findall(r"tl::mma_\w+", kernel.get_kernel_source()))
    shape = {"cuda -arch=sm_75": "m8n8k32", "cuda -arch=sm_80": "m16n8k64"}.get(target)
    assert {name.split("_")[1] for name in found} == ({shape} if shape else set())
    A = rng.integers(0, 256, (M, K // 2), np.uint8)
    B = rng.integers(0, 256, (N, K // 2) if transpose_b else (K, N // 2), np.uint8)
    C = np.zeros((M, N), np.int32)
    kernel(*(x.view(np.int8) if kind == "int4" else x for x, kind in ((A, a), (B, b))), C)
    right = values(B, b == "int4")
    np.testing.assert_array_equal(C, values(A, a == "int4") @ (right.T if transpose_b else right))


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89"])
def test_products_of_four_bits_are_built(arch: str) -> None:
    kernel = tilelang.compile(product(64, 64, 128, "int4", "uint4", "int32", True, 64), target=f"cuda -arch={arch}")
    (used,) = kernel.artifact.manifest.resources.values()
    assert used["spills"] == 0


def test_fragments_of_four_bits_in_registers(rng: Any) -> None:
    @T.prim_func
    def main(A: T.Tensor((64, 64), "int4"), B: T.Tensor((64, 64), "int4"), C: T.Tensor((64, 64), "int32")):
        with T.Kernel(1, threads=128):
            left = T.alloc_fragment((64, 64), "int4")
            right = T.alloc_shared((64, 64), "int4")
            acc = T.alloc_fragment((64, 64), "int32")
            T.copy(A, left)
            T.copy(B, right)
            T.gemm(left, right, acc, transpose_B=True, clear_accum=True)
            T.copy(acc, C)

    kernel = tilelang.compile(main, target="cuda -arch=sm_80", execution="emulate")
    A, B = (rng.integers(0, 256, (64, 32), np.uint8) for _ in range(2))
    C = np.zeros((64, 64), np.int32)
    kernel(A.view(np.int8), B.view(np.int8), C)
    np.testing.assert_array_equal(C, values(A, True) @ values(B, True).T)
