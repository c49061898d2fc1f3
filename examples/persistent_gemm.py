"""A product by a fixed number of blocks, each of which works through many tiles of C.

A: (M, K), B: (K, N), C: (M, N) float16. Reference: numpy, float64.
"""

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T


def persistent_matmul(M, N, K, blocks=4, block_M=32, block_N=32, block_K=32, dtype="float16"):
    """A kernel of `blocks` blocks, on a GPU as many as it has multiprocessors: they start once and never leave."""
    tiles = [T.ceildiv(M, block_M), T.ceildiv(N, block_N)]

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(blocks, threads=128) as block:
            A_tile = T.alloc_shared((block_M, block_K), dtype)
            B_tile = T.alloc_shared((block_K, block_N), dtype)
            acc = T.alloc_fragment((block_M, block_N), "float32")
            # Block b takes tiles b, b + blocks, b + 2 * blocks, ...; neighbours in that order share operands.
            for by, bx in T.Persistent(tiles, wave_size=blocks, index=block):
                T.clear(acc)
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                    T.copy(A[by * block_M, k * block_K], A_tile)
                    T.copy(B[k * block_K, bx * block_N], B_tile)
                    T.gemm(A_tile, B_tile, acc)
                T.copy(acc, C[by * block_M, bx * block_N])

    return main


DTYPE = "float16"
CASES = [{"M": 128, "N": 96, "K": 64, "blocks": 4}, {"M": 70, "N": 90, "K": 50, "blocks": 5}]


def check(target="cpu", execution="device", *, M, N, K, blocks):
    """The relative error of one product of random matrices."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((M, K)).astype(np.float16)
    B = rng.standard_normal((K, N)).astype(np.float16)
    kernel = tilelang.compile(persistent_matmul(M, N, K, blocks), out_idx=[2], target=target, execution=execution)
    return relative_error(run(kernel, A, B), A.astype(np.float64) @ B.astype(np.float64))


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
