"""FlashAttention, forward: softmax(Q K^T / sqrt(dim)) V without the scores ever leaving the block.

Q, O: (batch, seq_q, heads, dim) float16; K, V: (batch, seq_kv, heads_kv, dim) float16. With fewer heads_kv than heads,
each key head serves `heads // heads_kv` query heads (GQA). With `causal`, the last query sees every key, the one before
it all but the last, and so on. Reference: numpy, float64.
"""

import math

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T


def flash_attention(batch, heads, heads_kv, seq_q, seq_kv, dim, causal, block_M=32, block_N=32, dtype="float16"):
    """A block computes `block_M` queries of one head; it walks over the keys in tiles of `block_N`."""
    assert not causal or seq_kv >= seq_q
    group = heads // heads_kv
    past = seq_kv - seq_q  # keys that the first query sees before its own
    scale = math.log2(math.e) / math.sqrt(dim)  # exp(x) is exp2(x * log2(e)), one operation on a GPU

    @T.prim_func
    def main(
        Q: T.Tensor((batch, seq_q, heads, dim), dtype),
        K: T.Tensor((batch, seq_kv, heads_kv, dim), dtype),
        V: T.Tensor((batch, seq_kv, heads_kv, dim), dtype),
        O: T.Tensor((batch, seq_q, heads, dim), dtype),
    ):
        with T.Kernel(T.ceildiv(seq_q, block_M), heads, batch, threads=128) as (bx, by, bz):
            Q_tile = T.alloc_shared((block_M, dim), dtype)
            K_tile = T.alloc_shared((block_N, dim), dtype)
            V_tile = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            out = T.alloc_fragment((block_M, dim), "float32")
            largest = T.alloc_fragment((block_M,), "float32")
            largest_before = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")

            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_tile)
            T.clear(out)
            T.clear(total)
            T.fill(largest, -T.infinity("float32"))

            tiles = T.ceildiv(seq_kv, block_N)
            if causal:  # a Python condition: decided while the kernel is traced
                tiles = T.min(tiles, T.ceildiv((bx + 1) * block_M + past, block_N))
            for k in T.Pipelined(tiles, num_stages=2):
                T.copy(K[bz, k * block_N : (k + 1) * block_N, by // group, :], K_tile)
                # The scores start as the mask, 0 or -infinity, and the product is added to it.
                for i, j in T.Parallel(block_M, block_N):
                    seen = k * block_N + j < seq_kv
                    if causal:
                        seen = seen and k * block_N + j <= bx * block_M + i + past
                    scores[i, j] = T.if_then_else(seen, 0, -T.infinity("float32"))
                T.gemm(Q_tile, K_tile, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)

                # Online softmax: when a row's maximum grows, what was summed so far is scaled down to it.
                T.copy(largest, largest_before)
                T.reduce_max(scores, largest, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    rescale[i] = T.exp2((largest_before[i] - largest[i]) * scale)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2((scores[i, j] - largest[i]) * scale)
                T.reduce_sum(scores, tile_sum, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * rescale[i] + tile_sum[i]
                for i, j in T.Parallel(block_M, dim):
                    out[i, j] *= rescale[i]

                T.copy(V[bz, k * block_N : (k + 1) * block_N, by // group, :], V_tile)
                T.copy(scores, weights)
                T.gemm(weights, V_tile, out, policy=T.GemmWarpPolicy.FullRow)

            for i, j in T.Parallel(block_M, dim):
                out[i, j] /= total[i]
            T.copy(out, O[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main


def attention_reference(Q, K, V, causal):
    """The definition, in float64."""
    Q, K, V = (x.astype(np.float64) for x in (Q, K, V))
    group = Q.shape[2] // K.shape[2]
    K, V = np.repeat(K, group, axis=2), np.repeat(V, group, axis=2)
    scores = np.einsum("bqhd,bkhd->bhqk", Q, K) / math.sqrt(Q.shape[-1])
    if causal:
        seen = np.tri(Q.shape[1], K.shape[1], K.shape[1] - Q.shape[1], dtype=bool)
        scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("bhqk,bkhd->bqhd", weights, V)


DTYPE = "float16"
CASES = [
    {"heads": 2, "heads_kv": 2, "seq_q": 64, "seq_kv": 64, "dim": 32, "causal": False},
    {"heads": 2, "heads_kv": 2, "seq_q": 64, "seq_kv": 64, "dim": 32, "causal": True},
    {"heads": 4, "heads_kv": 2, "seq_q": 40, "seq_kv": 75, "dim": 32, "causal": False},
    {"heads": 2, "heads_kv": 1, "seq_q": 40, "seq_kv": 43, "dim": 24, "causal": True, "batch": 1},
]


def check(target="cpu", execution="device", *, heads, heads_kv, seq_q, seq_kv, dim, causal, batch=2):
    """The relative error on random queries, keys and values."""
    rng = np.random.default_rng(0)
    Q = rng.standard_normal((batch, seq_q, heads, dim)).astype(np.float16)
    K, V = rng.standard_normal((2, batch, seq_kv, heads_kv, dim)).astype(np.float16)
    func = flash_attention(batch, heads, heads_kv, seq_q, seq_kv, dim, causal)
    kernel = tilelang.compile(func, out_idx=[3], target=target, execution=execution)
    return relative_error(run(kernel, Q, K, V), attention_reference(Q, K, V, causal))


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
