"""C = A @ B in float16, accumulated in float32, in both styles of the language.

A: (M, K), B: (K, N), C: (M, N) float16. Reference: numpy, float64.
"""

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T


def matmul(M, N, K, block_M=64, block_N=64, block_K=32, num_stages=2, dtype="float16", accum_dtype="float32"):
    """The lazy style: a Python function makes a kernel for given sizes. Under `@tilelang.jit` it compiles it, too."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), dtype)
            B_tile = T.alloc_shared((block_K, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), accum_dtype)

            T.use_swizzle(panel_size=8)  # neighbouring blocks share rows of A and columns of B in L2
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                # An origin, A[i, k], stands for the tile that begins there; its size is the other side's.
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[k * block_K, bx * block_N], B_tile)
                T.gemm(A_tile, B_tile, acc)
            T.copy(acc, C[by * block_M, bx * block_N])  # rounds to float16 on the way

    return main


def matmul_eager(A, B, block_M=64, block_N=64, block_K=32, num_stages=2):
    """The eager style, for `@tilelang.jit`: the body is the kernel, sizes come from the arguments of the call."""
    M, N, K = T.const("M, N, K")
    A: T.Tensor[[M, K], T.float16]
    B: T.Tensor[[K, N], T.float16]
    C = T.empty((M, N), T.float16)

    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_tile = T.alloc_shared((block_M, block_K), T.float16)
        B_tile = T.alloc_shared((block_K, block_N), T.float16)
        acc = T.alloc_fragment((block_M, block_N), T.float32)
        T.clear(acc)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
            T.copy(A[by * block_M, k * block_K], A_tile)
            T.copy(B[k * block_K, bx * block_N], B_tile)
            T.gemm(A_tile, B_tile, acc)
        T.copy(acc, C[by * block_M, bx * block_N])

    return C


DTYPE = "float16"
CASES = [
    {"style": "lazy", "M": 128, "N": 128, "K": 64},
    {"style": "lazy", "M": 100, "N": 72, "K": 50},
    {"style": "eager", "M": 128, "N": 64, "K": 96},
    {"style": "eager", "M": 65, "N": 130, "K": 33},
]


def check(target="cpu", execution="device", *, style, M, N, K):
    """The relative error of one product of random matrices."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((M, K)).astype(np.float16)
    B = rng.standard_normal((K, N)).astype(np.float16)
    if style == "lazy":
        C = run(tilelang.compile(matmul(M, N, K), out_idx=[2], target=target, execution=execution), A, B)
    else:
        C = run(tilelang.jit(matmul_eager, target=target, execution=execution), A, B)
    return relative_error(C, A.astype(np.float64) @ B.astype(np.float64))


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
