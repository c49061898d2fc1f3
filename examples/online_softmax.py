"""Softmax of rows that are longer than a tile, reading them twice instead of three times.

X, Y: (M, N) float32. One pass keeps a running maximum and the sum of exponentials relative to it; when the maximum
grows, the sum is scaled down. The second pass writes. Reference: numpy, float64.
"""

import math

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T


def online_softmax(M, N, block_M=16, block_N=64, dtype="float32"):
    """A block takes `block_M` rows, in tiles of `block_N` columns."""
    log2e = math.log2(math.e)

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bm:
            X_tile = T.alloc_shared((block_M, block_N), dtype)
            powers = T.alloc_fragment((block_M, block_N), "float32")
            largest = T.alloc_fragment((block_M,), "float32")
            largest_before = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")

            # Past its edge X shall read as -infinity, not 0: it changes no maximum and its exponential is 0.
            T.annotate_safe_value({X: -T.infinity(dtype)})
            T.fill(largest, T.min_value("float32"))
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(N, block_N), num_stages=2):
                T.copy(X[bm * block_M, k * block_N], X_tile)
                T.copy(largest, largest_before)
                T.reduce_max(X_tile, largest, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    powers[i, j] = T.exp2((X_tile[i, j] - largest[i]) * log2e)
                T.reduce_sum(powers, tile_sum, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * T.exp2((largest_before[i] - largest[i]) * log2e) + tile_sum[i]

            for k in T.Pipelined(T.ceildiv(N, block_N), num_stages=2):
                T.copy(X[bm * block_M, k * block_N], X_tile)
                for i, j in T.Parallel(block_M, block_N):
                    powers[i, j] = T.exp2((X_tile[i, j] - largest[i]) * log2e) / total[i]
                T.copy(powers, Y[bm * block_M, k * block_N])

    return main


DTYPE = "float32"
CASES = [{"M": 32, "N": 256}, {"M": 20, "N": 150}]


def check(target="cpu", execution="device", *, M, N):
    """The relative error on random rows of different sizes of numbers."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((M, N)) * rng.uniform(0.1, 5, (M, 1))).astype(np.float32)
    kernel = tilelang.compile(online_softmax(M, N), out_idx=[1], target=target, execution=execution)
    powers = np.exp(X.astype(np.float64) - X.max(axis=1, keepdims=True))
    return relative_error(run(kernel, X), powers / powers.sum(axis=1, keepdims=True))


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
