"""Multi-head latent attention, decoding: one query for each head, and one latent vector that is key and value at once.

Q: (batch, heads, dim), Q_pe: (batch, heads, pe_dim), KV: (batch, seqlen, kv_heads, dim), K_pe: (batch, seqlen, kv_heads,
pe_dim), Output: (batch, heads, dim), all float16. score = (Q . KV + Q_pe . K_pe) / sqrt(dim + pe_dim), and the output is
the softmax-weighted mean of KV. Reference: numpy, float64. After appendix B.3 of the TileLang paper.

`mla_decode` gives a block all keys of its heads. `mla_decode_split` gives it a part of them, so that one long sequence
fills the machine, and a second kernel of the same function combines the parts.
"""

import math

import numpy as np
from checking import main, relative_error, run

import tilelang
import tilelang.language as T

INFINITY = float("inf")


@T.macro
def attend(Q, Q_pe, KV, K_pe, b, head, kv_head, first_key, last_key, acc, largest, total, block_N, scale):
    """Attend from rows of Q to the keys `first_key <= key < last_key`: unnormalised sum, its maximum and its weight.

    A macro is a part of the kernels that call it; buffers are arguments like any other.
    """
    block_H, dim = acc.shape
    pe_dim = Q_pe.shape[-1]
    Q_tile = T.alloc_shared((block_H, dim), Q.dtype)
    Q_pe_tile = T.alloc_shared((block_H, pe_dim), Q.dtype)
    KV_tile = T.alloc_shared((block_N, dim), Q.dtype)
    K_pe_tile = T.alloc_shared((block_N, pe_dim), Q.dtype)
    weights = T.alloc_shared((block_H, block_N), Q.dtype)
    scores = T.alloc_fragment((block_H, block_N), "float32")
    largest_before = T.alloc_fragment((block_H,), "float32")
    rescale = T.alloc_fragment((block_H,), "float32")
    tile_sum = T.alloc_fragment((block_H,), "float32")

    T.copy(Q[b, head : head + block_H, :], Q_tile)
    T.copy(Q_pe[b, head : head + block_H, :], Q_pe_tile)
    T.clear(acc)
    T.clear(total)
    T.fill(largest, -INFINITY)
    for k in T.Pipelined(T.ceildiv(last_key - first_key, block_N), num_stages=2):
        key = first_key + k * block_N
        T.copy(KV[b, key : key + block_N, kv_head, :], KV_tile)
        T.copy(K_pe[b, key : key + block_N, kv_head, :], K_pe_tile)
        T.gemm(Q_tile, KV_tile, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol, clear_accum=True)
        T.gemm(Q_pe_tile, K_pe_tile, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
        for i, j in T.Parallel(block_H, block_N):
            scores[i, j] = T.if_then_else(key + j < last_key, scores[i, j] * scale, -INFINITY)
        T.copy(largest, largest_before)
        T.reduce_max(scores, largest, dim=1, clear=False)
        for i in T.Parallel(block_H):
            rescale[i] = T.exp2(largest_before[i] - largest[i])
        for i, j in T.Parallel(block_H, block_N):
            scores[i, j] = T.exp2(scores[i, j] - largest[i])
        T.reduce_sum(scores, tile_sum, dim=1)
        for i in T.Parallel(block_H):
            total[i] = total[i] * rescale[i] + tile_sum[i]
        for i, j in T.Parallel(block_H, dim):
            acc[i, j] *= rescale[i]
        # acc is wide: each warp group owns half of its columns and needs all weights, hence shared memory.
        T.copy(scores, weights)
        T.gemm(weights, KV_tile, acc, policy=T.GemmWarpPolicy.FullCol)


def mla_decode(batch, heads, kv_heads, seqlen, dim, pe_dim, block_H=16, block_N=32, dtype="float16"):
    """One block for each group of up to `block_H` heads with a common latent; all its keys."""
    group = heads // kv_heads
    block_H = min(block_H, group)
    assert group % block_H == 0
    scale = math.log2(math.e) / math.sqrt(dim + pe_dim)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        Q_pe: T.Tensor((batch, heads, pe_dim), dtype),
        KV: T.Tensor((batch, seqlen, kv_heads, dim), dtype),
        K_pe: T.Tensor((batch, seqlen, kv_heads, pe_dim), dtype),
        Output: T.Tensor((batch, heads, dim), dtype),
    ):
        with T.Kernel(batch, heads // block_H, threads=256) as (bx, by):
            acc = T.alloc_fragment((block_H, dim), "float32")
            largest = T.alloc_fragment((block_H,), "float32")
            total = T.alloc_fragment((block_H,), "float32")
            head = by * block_H
            attend(Q, Q_pe, KV, K_pe, bx, head, head // group, 0, seqlen, acc, largest, total, block_N, scale)
            for i, j in T.Parallel(block_H, dim):
                acc[i, j] /= total[i]
            T.copy(acc, Output[bx, head : head + block_H, :])

    return main


def mla_decode_split(batch, heads, kv_heads, seqlen, dim, pe_dim, num_split, block_H=16, block_N=32, dtype="float16"):
    """The keys in `num_split` parts, one block each; then one block per head combines what they found."""
    group = heads // kv_heads
    block_H = min(block_H, group)
    assert group % block_H == 0
    scale = math.log2(math.e) / math.sqrt(dim + pe_dim)
    part = -(-seqlen // num_split)
    part = -(-part // block_N) * block_N  # whole tiles; the last parts may have no keys at all

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        Q_pe: T.Tensor((batch, heads, pe_dim), dtype),
        KV: T.Tensor((batch, seqlen, kv_heads, dim), dtype),
        K_pe: T.Tensor((batch, seqlen, kv_heads, pe_dim), dtype),
        Output: T.Tensor((batch, heads, dim), dtype),
    ):
        # Scratch in global memory, between the kernels: each part's mean, and the log2 of its weight.
        means = T.alloc_global((batch, heads, num_split, dim), "float32")
        logs = T.alloc_global((batch, heads, num_split), "float32")

        with T.Kernel(batch, heads // block_H, num_split, threads=256) as (bx, by, bz):
            acc = T.alloc_fragment((block_H, dim), "float32")
            largest = T.alloc_fragment((block_H,), "float32")
            total = T.alloc_fragment((block_H,), "float32")
            head = by * block_H
            first = T.min(bz * part, seqlen)
            last = T.min(first + part, seqlen)
            attend(Q, Q_pe, KV, K_pe, bx, head, head // group, first, last, acc, largest, total, block_N, scale)
            for i, j in T.Parallel(block_H, dim):
                means[bx, head + i, bz, j] = T.if_then_else(total[i] > 0, acc[i, j] / total[i], 0)
            for i in T.Parallel(block_H):
                logs[bx, head + i, bz] = largest[i] + T.log2(total[i])  # -infinity for a part without keys

        with T.Kernel(batch, heads, threads=128) as (bx, by):
            weights = T.alloc_shared((num_split,), "float32")
            largest = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            acc = T.alloc_fragment((dim,), "float32")
            T.copy(logs[bx, by, :], weights)
            T.reduce_max(weights, largest, dim=0)
            for s in T.Parallel(num_split):
                weights[s] = T.exp2(weights[s] - largest[0])
            T.reduce_sum(weights, total, dim=0)
            T.clear(acc)
            for s in T.serial(num_split):
                for j in T.Parallel(dim):
                    acc[j] += means[bx, by, s, j] * weights[s] / total[0]
            T.copy(acc, Output[bx, by, :])

    return main


def mla_reference(Q, Q_pe, KV, K_pe):
    """The definition, in float64."""
    Q, Q_pe, KV, K_pe = (x.astype(np.float64) for x in (Q, Q_pe, KV, K_pe))
    group = Q.shape[1] // KV.shape[2]
    KV, K_pe = np.repeat(KV, group, axis=2), np.repeat(K_pe, group, axis=2)
    scores = np.einsum("bhd,bkhd->bhk", Q, KV) + np.einsum("bhd,bkhd->bhk", Q_pe, K_pe)
    scores /= math.sqrt(Q.shape[-1] + Q_pe.shape[-1])
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    return np.einsum("bhk,bkhd->bhd", weights, KV)


DTYPE = "float16"
CASES = [
    {"num_split": 1, "heads": 16, "kv_heads": 1, "seqlen": 64, "dim": 64, "pe_dim": 16},
    {"num_split": 1, "heads": 24, "kv_heads": 3, "seqlen": 77, "dim": 40, "pe_dim": 8, "batch": 1},
    {"num_split": 2, "heads": 16, "kv_heads": 1, "seqlen": 128, "dim": 64, "pe_dim": 16},
    {"num_split": 4, "heads": 32, "kv_heads": 2, "seqlen": 77, "dim": 40, "pe_dim": 8},  # the last part is empty
]


def check(target="cpu", execution="device", *, num_split, heads, kv_heads, seqlen, dim, pe_dim, batch=2):
    """The relative error on random queries and latents."""
    rng = np.random.default_rng(0)
    arrays = [
        rng.standard_normal(shape).astype(np.float16)
        for shape in [
            (batch, heads, dim),
            (batch, heads, pe_dim),
            (batch, seqlen, kv_heads, dim),
            (batch, seqlen, kv_heads, pe_dim),
        ]
    ]
    sizes = (batch, heads, kv_heads, seqlen, dim, pe_dim)
    func = mla_decode(*sizes) if num_split == 1 else mla_decode_split(*sizes, num_split)
    kernel = tilelang.compile(func, out_idx=[4], target=target, execution=execution)
    return relative_error(run(kernel, *arrays), mla_reference(*arrays))


if __name__ == "__main__":
    raise SystemExit(main(check, CASES, DTYPE))
