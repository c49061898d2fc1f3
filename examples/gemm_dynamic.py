"""One compiled kernel for products of many sizes: the number of rows is bound from each call's arguments.

A: (m, K), B: (K, N), C: (m, N) float16, m dynamic. Reference: numpy, float64.
"""

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T


def matmul_any_rows(N, K, block_M=32, block_N=64, block_K=32, dtype="float16"):
    """A kernel for a layer of fixed N and K, and a batch of any size m."""
    m = T.dynamic("m")

    @T.prim_func
    def main(A: T.Tensor((m, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((m, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(m, block_M), threads=128) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), dtype)
            B_tile = T.alloc_shared((block_K, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[k * block_K, bx * block_N], B_tile)
                T.gemm(A_tile, B_tile, acc)
            T.copy(acc, C[by * block_M, bx * block_N])

    return main


DTYPE = "float16"
CASES = [{"rows": [64, 1, 50, 0], "N": 128, "K": 64}, {"rows": [33, 70], "N": 100, "K": 40}]


def check(target="cpu", execution="device", *, rows, N, K):
    """The largest relative error of calls of one kernel with each number of rows, 0 included."""
    rng = np.random.default_rng(0)
    kernel = tilelang.compile(matmul_any_rows(N, K), out_idx=[2], target=target, execution=execution)
    B = rng.standard_normal((K, N)).astype(np.float16)
    errors = []
    for m in rows:
        A = rng.standard_normal((m, K)).astype(np.float16)
        errors.append(relative_error(run(kernel, A, B), A.astype(np.float64) @ B.astype(np.float64)))
    return max(errors)


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
