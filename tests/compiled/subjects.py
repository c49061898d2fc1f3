"""The kernels whose lowered form, text and resources are recorded, at tiles that one would run on the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import dequant_gemm_fp4
import flash_attention
import gemm_dynamic
import histogram
import kernels as measured
import mamba2_chunk_scan
import mamba2_chunk_state
import mla_decode
import online_softmax
import vector_add
from cases import Attention, Gemm
from configs import AttentionConfig, GemmConfig

import tilelang.language as T

ARCHS = ("sm_80", "sm_89", "gfx942")


@dataclass(frozen=True)
class Subject:
    """A kernel: `make(arch)` gives the function. `archs`: where its element types have an instruction."""

    make: Callable[[str], Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    archs: tuple[str, ...] = ARCHS


def product(dtype: str, block_k: int, transpose_b: bool = False, side: int = 128) -> Callable[[str], Any]:
    """4096^3 as benchmarks/gpu measures it. float8_e4m3 is the type of that name that the chip has."""
    config = GemmConfig(side, side, block_k, 3, 128, 8)

    def make(arch: str) -> Any:
        own = {"float8_e4m3": "float8_e4m3fnuz" if arch.startswith("gfx") else "float8_e4m3fn"}.get(dtype, dtype)
        return measured.kernel(Gemm("", 4096, 4096, 4096, own, transpose_b), config)

    return make


def gemm_bias_relu(_: str, M: int = 4096, N: int = 4096, K: int = 4096) -> Any:
    """C = max(A @ B + bias, 0), the epilogue in the registers of the accumulator."""

    @T.prim_func
    def main(
        A: T.Tensor((M, K), "float16"),
        B: T.Tensor((K, N), "float16"),
        bias: T.Tensor((N,), "float16"),
        C: T.Tensor((M, N), "float16"),
    ):
        with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, 128), threads=128) as (bx, by):
            A_tile = T.alloc_shared((128, 32), "float16")
            B_tile = T.alloc_shared((32, 128), "float16")
            bias_tile = T.alloc_shared((128,), "float16")
            acc = T.alloc_fragment((128, 128), "float32")
            T.copy(bias[bx * 128], bias_tile)
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=3):
                T.copy(A[by * 128, k * 32], A_tile)
                T.copy(B[k * 32, bx * 128], B_tile)
                T.gemm(A_tile, B_tile, acc)
            for i, j in T.Parallel(128, 128):
                acc[i, j] = T.max(acc[i, j] + bias_tile[j], 0)
            T.copy(acc, C[by * 128, bx * 128])

    return main


def attention(arch: str) -> Any:
    """Half the queries, without stages, where a block has 64 KB of shared memory only."""
    config = AttentionConfig(64, 64, 1, 128) if arch.startswith("gfx") else AttentionConfig(128, 48, 2, 128)
    return measured.kernel(Attention("", 4, 32, 32, 4096, True), config)


def cumulative_sum(_: str, M: int = 4096, N: int = 512) -> Any:
    """Sums along rows."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, 8), threads=128) as bm:
            tile = T.alloc_shared((8, N), "float32")
            T.copy(X[bm * 8, 0], tile)
            T.cumsum(tile, dim=1)
            T.copy(tile, Y[bm * 8, 0])

    return main


FAST = {"tl.enable_fast_math": True}
TF32 = {"tl.allow_tf32": True}
SUBJECTS = {
    "gemm_f16": Subject(product("float16", 32)),
    "gemm_bf16": Subject(product("bfloat16", 32)),
    "gemm_tf32": Subject(product("tf32", 16), TF32),
    "gemm_tf32_of_rows": Subject(product("tf32", 32), TF32, archs=("sm_90a",)),
    "gemm_tf32x3": Subject(product("tf32", 64, True, 64), {"tl.allow_tf32x3": True}, archs=("sm_80",)),
    "gemm_int8": Subject(product("int8", 64, True)),
    "gemm_fp8": Subject(product("float8_e4m3", 64, True), archs=("sm_89", "sm_90", "gfx942")),
    "gemm_bias_relu": Subject(gemm_bias_relu),
    "gemm_dynamic": Subject(lambda _: gemm_dynamic.matmul_any_rows(4096, 4096, 128, 128, 32)),
    "attention": Subject(attention, FAST),
    "attention_masked": Subject(
        lambda _: flash_attention.flash_attention(4, 32, 8, 4000, 4000, 64, True, 64, 64), FAST
    ),
    "mla_decode": Subject(
        lambda arch: mla_decode.mla_decode_split(
            8, 128, 1, 4096, 512, 64, 4, block_N=16 if arch.startswith("gfx") else 32
        )
    ),
    "chunk_state": Subject(lambda _: mamba2_chunk_state.chunk_state(8, 4096, 256, 1, 80, 64, 128, 64, 64, 32)),
    "chunk_scan": Subject(lambda _: mamba2_chunk_scan.chunk_scan(8, 4096, 256, 1, 80, 64, 128, 64, 64, 32)),
    "dequant_gemm": Subject(lambda _: dequant_gemm_fp4.matmul_fp16_fp4(4096, 4096, 4096, 64, 128, 64)),
    "softmax": Subject(lambda _: online_softmax.online_softmax(4096, 4096, 16, 128)),
    "cumulative_sum": Subject(cumulative_sum),
    "histogram": Subject(lambda _: histogram.histogram(1 << 20, 256)),
    "add_dynamic": Subject(lambda _: vector_add.vector_add(T.dynamic("n"))),
}
