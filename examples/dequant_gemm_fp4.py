"""Ct = B @ A.T with weights B of four bits: float4 e2m1, two in a byte, decoded on the way to the matrix units.

A: (M, K) float16; B: (N, K // 2) uint8, element k in byte k // 2, low half first; Ct: (N, M) float16.
The weights stay packed in global and shared memory; each is decoded once per block, in registers.
Reference: a table of the 16 values of e2m1 and numpy in float64. After appendix B.2 of the TileLang paper.
"""

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T
from tilelang.quantize import packed_to_e2m1

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def matmul_fp16_fp4(M, N, K, block_M=32, block_N=32, block_K=64, num_stages=2, dtype="float16"):
    """Weights as bytes, decoded by integer operations of the kernel."""
    decode = packed_to_e2m1("uint", 8)

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K // 2), "uint8"), Ct: T.Tensor((N, M), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), dtype)
            B_tile = T.alloc_shared((block_N, block_K // 2), "uint8")
            B_packed = T.alloc_fragment((block_N, block_K // 2), "uint8")
            B_decoded = T.alloc_fragment((block_N, block_K), dtype)
            acc = T.alloc_fragment((block_N, block_M), "float32")

            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[bx * block_N, k * block_K // 2], B_tile)
                T.copy(B_tile, B_packed)
                for i, j in T.Parallel(block_N, block_K):
                    B_decoded[i, j] = decode(4, B_packed[i, j // 2], j % 2, dtype=dtype)
                T.gemm(B_decoded, A_tile, acc, transpose_B=True)
            T.copy(acc, Ct[bx * block_N, by * block_M])

    return main


def matmul_fp16_e2m1(M, N, K, block_M=32, block_N=32, block_K=64, num_stages=2, dtype="float16"):
    """The same with the language's own type for B: the copy into B_decoded decodes."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), T.float4_e2m1fn), Ct: T.Tensor((N, M), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), dtype)
            B_tile = T.alloc_shared((block_N, block_K), T.float4_e2m1fn)
            B_decoded = T.alloc_fragment((block_N, block_K), dtype)
            acc = T.alloc_fragment((block_N, block_M), "float32")

            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[bx * block_N, k * block_K], B_tile)
                T.copy(B_tile, B_decoded)
                T.gemm(B_decoded, A_tile, acc, transpose_B=True)
            T.copy(acc, Ct[bx * block_N, by * block_M])

    return main


DTYPE = "float16"
CASES = [
    {"weights": "bytes", "M": 32, "N": 64, "K": 128},
    {"weights": "bytes", "M": 20, "N": 50, "K": 90},
    {"weights": "float4", "M": 32, "N": 64, "K": 128},
    {"weights": "float4", "M": 20, "N": 50, "K": 90},
]


def check(target="cpu", execution="device", *, weights, M, N, K):
    """The relative error of one product with random weights."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((M, K)).astype(np.float16)
    B = rng.integers(0, 256, (N, K // 2), np.uint8)
    factory = matmul_fp16_fp4 if weights == "bytes" else matmul_fp16_e2m1
    kernel = tilelang.compile(factory(M, N, K), out_idx=[2], target=target, execution=execution)
    decoded = E2M1[np.stack([B & 15, B >> 4], axis=-1).reshape(N, K)]
    return relative_error(run(kernel, A, B), decoded @ A.astype(np.float64).T)


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
