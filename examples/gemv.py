"""y = W @ x in float16, accumulated in float32: nothing but reading W, so everything is about reading it fast.

W: (N, K), x: (K,), y: (N,) float16. Reference: numpy, float64.
"""

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T

VECTOR = 8  # float16 values that one load of 16 bytes brings


def gemv(N, K, block_N=4, block_K=2048, threads=128, dtype="float16"):
    """A block computes `block_N` elements of y; its threads share the columns of those rows of W."""

    @T.prim_func
    def main(W: T.Tensor((N, K), dtype), x: T.Tensor((K,), dtype), y: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bn:
            W_tile = T.alloc_fragment((block_N, block_K), dtype)
            x_tile = T.alloc_fragment((block_K,), dtype)
            sums = T.alloc_fragment((block_N, block_K // VECTOR), "float32")
            total = T.alloc_fragment((block_N,), "float32")

            T.clear(sums)
            for k in T.serial(T.ceildiv(K, block_K)):
                # Straight to registers: all loads of a tile are under way before the first product needs one.
                T.copy(W[bn * block_N, k * block_K], W_tile, eviction_policy="evict_first")  # nobody reads it again
                T.copy(x[k * block_K], x_tile)
                # Each thread keeps a sum for every row and vector of its own; only the last line adds across threads.
                for i, j in T.Parallel(block_N, block_K // VECTOR):
                    for v in T.serial(VECTOR):
                        sums[i, j] += T.cast(W_tile[i, j * VECTOR + v], "float32") * x_tile[j * VECTOR + v]
            T.reduce_sum(sums, total, dim=1)
            T.copy(total, y[bn * block_N])

    return main


DTYPE = "float16"
CASES = [
    {"N": 16, "K": 2048, "block_N": 4, "block_K": 1024, "threads": 128},
    {"N": 5, "K": 1000, "block_N": 2, "block_K": 512, "threads": 64},
    {"N": 3, "K": 77, "block_N": 1, "block_K": 256, "threads": 32},
]


def check(target="cpu", execution="device", *, N, K, block_N, block_K, threads):
    """The relative error of one product of a random matrix and a random vector."""
    rng = np.random.default_rng(0)
    W = rng.standard_normal((N, K)).astype(np.float16)
    x = rng.standard_normal(K).astype(np.float16)
    func = gemv(N, K, block_N, block_K, threads)
    y = run(tilelang.compile(func, out_idx=[2], target=target, execution=execution), W, x)
    return relative_error(y, W.astype(np.float64) @ x.astype(np.float64))


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
