"""RMSNorm and SiLU in one pass over memory's rows: y = silu(x / sqrt(mean(x^2) + eps) * gamma).

x, y: (B, T, H, W, C) float16, C a multiple of 32, normalised over C; gamma: (C,) float16. Sums in float32, where the
squares cannot overflow. Reference: numpy, float64.
"""

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T


def rms_norm_silu(M, C, block_M=16, eps=1e-5, dtype="float16"):
    """A kernel for M rows of C channels. A block takes `block_M` rows and goes over their channels twice."""
    assert C % 32 == 0
    block_C = next(size for size in (128, 64, 32) if C % size == 0)

    @T.prim_func
    def main(X: T.Tensor((M, C), dtype), gamma: T.Tensor((C,), dtype), Y: T.Tensor((M, C), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bm:
            X_tile = T.alloc_shared((block_M, block_C), dtype)
            gamma_tile = T.alloc_shared((block_C,), dtype)
            squares = T.alloc_fragment((block_M, block_C), "float32")
            sum_of_squares = T.alloc_fragment((block_M,), "float32")
            scale = T.alloc_fragment((block_M,), "float32")
            out = T.alloc_fragment((block_M, block_C), "float32")

            T.clear(sum_of_squares)
            for k in T.Pipelined(C // block_C, num_stages=2):
                T.copy(X[bm * block_M, k * block_C], X_tile)
                for i, j in T.Parallel(block_M, block_C):
                    squares[i, j] = T.cast(X_tile[i, j], "float32") * X_tile[i, j]
                T.reduce_sum(squares, sum_of_squares, dim=1, clear=False)  # adds to what earlier tiles gave
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(sum_of_squares[i] / C + eps)

            for k in T.Pipelined(C // block_C, num_stages=2):
                T.copy(X[bm * block_M, k * block_C], X_tile)
                T.copy(gamma[k * block_C], gamma_tile)
                for i, j in T.Parallel(block_M, block_C):
                    normed = X_tile[i, j] * scale[i] * gamma_tile[j]
                    out[i, j] = normed * T.sigmoid(normed)
                T.copy(out, Y[bm * block_M, k * block_C])

    return main


def rms_norm_silu_bthwc(x, gamma, target="cpu", execution="device"):
    """The operator on whole tensors: (B, T, H, W, C) and (C,) to (B, T, H, W, C)."""
    M, C = x.size // x.shape[-1], x.shape[-1]
    kernel = tilelang.compile(rms_norm_silu(M, C), out_idx=[2], target=target, execution=execution)
    return run(kernel, x.reshape(M, C), gamma).reshape(x.shape)


DTYPE = "float16"
CASES = [{"shape": (1, 2, 4, 4, 128)}, {"shape": (2, 1, 3, 5, 160)}, {"shape": (1, 1, 3, 3, 64)}]


def check(target="cpu", execution="device", *, shape):
    """The relative error on large random inputs: their squares would overflow float16."""
    rng = np.random.default_rng(0)
    x = (300 * rng.standard_normal(shape)).astype(np.float16)
    gamma = rng.standard_normal(shape[-1]).astype(np.float16)
    exact = x.astype(np.float64)
    normed = exact / np.sqrt(np.mean(exact**2, axis=-1, keepdims=True) + 1e-5) * gamma.astype(np.float64)
    return relative_error(rms_norm_silu_bthwc(x, gamma, target, execution), normed / (1 + np.exp(-normed)))


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
