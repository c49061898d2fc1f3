"""The kernels that are measured on a GPU, as the documents write them: the whole text of each."""

from __future__ import annotations

import math
from typing import Any

from cases import Attention, AttentionConfig, Gemm, GemmConfig

import tilelang.language as T

ACCUMULATE = {"int8": "int32"}  # everything else in float32


def gemm(case: Gemm, config: GemmConfig) -> Any:
    """C = A @ B, accumulated in float32 or int32."""
    M, N, K, transpose_B = case.m, case.n, case.k, case.transpose_b
    block_M, block_N, block_K = config.block_m, config.block_n, config.block_k
    dtype = "float32" if case.dtype == "tf32" else case.dtype
    accum = ACCUMULATE.get(dtype, "float32")
    B_shape, B_tile = ((N, K), (block_N, block_K)) if transpose_B else ((K, N), (block_K, block_N))

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor(B_shape, dtype), C: T.Tensor((M, N), case.out_dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=config.threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared(B_tile, dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum)
            if config.panel:
                T.use_swizzle(panel_size=config.panel)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=config.stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                if transpose_B:
                    T.copy(B[bx * block_N, k * block_K], B_shared)
                else:
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=transpose_B)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def attention(case: Attention, config: AttentionConfig) -> Any:
    """Online softmax over tiles of keys, in base 2; the scores never leave the registers."""
    batch, heads, heads_kv, tokens, dim = case.batch, case.heads, case.heads_kv, case.tokens, case.dim
    block_M, block_N, causal, dtype = config.block_m, config.block_n, case.causal, case.dtype
    group = heads // heads_kv
    scale = math.log2(math.e) / math.sqrt(dim)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, tokens, dim), dtype),
        K: T.Tensor((batch, heads_kv, tokens, dim), dtype),
        V: T.Tensor((batch, heads_kv, tokens, dim), dtype),
        O: T.Tensor((batch, heads, tokens, dim), dtype),
    ):
        with T.Kernel(T.ceildiv(tokens, block_M), heads, batch, threads=config.threads) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            out = T.alloc_fragment((block_M, dim), "float32")
            largest = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")

            # The blocks with the most work begin first: with a causal mask those of the last queries.
            row = (T.ceildiv(tokens, block_M) - 1 - bx if causal else bx) * block_M
            T.copy(Q[bz, by, row : row + block_M, :], Q_shared)
            T.clear(out)
            T.clear(total)
            T.fill(largest, -T.infinity("float32"))
            steps = T.ceildiv(row + block_M, block_N) if causal else T.ceildiv(tokens, block_N)
            for k in T.Pipelined(steps, num_stages=config.stages):
                T.copy(K[bz, by // group, k * block_N : (k + 1) * block_N, :], K_shared)
                T.clear(scores)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                if causal:
                    if (k + 1) * block_N > row:  # a tile that the diagonal crosses
                        for i, j in T.Parallel(block_M, block_N):
                            scores[i, j] = T.if_then_else(
                                row + i >= k * block_N + j, scores[i, j], -T.infinity("float32")
                            )
                T.copy(largest, before)
                T.reduce_max(scores, largest, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    rescale[i] = T.exp2((before[i] - largest[i]) * scale)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2(scores[i, j] * scale - largest[i] * scale)
                T.reduce_sum(scores, tile_sum, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * rescale[i] + tile_sum[i]
                T.copy(scores, weights)
                for i, j in T.Parallel(block_M, dim):
                    out[i, j] *= rescale[i]
                T.copy(V[bz, by // group, k * block_N : (k + 1) * block_N, :], V_shared)
                T.gemm(weights, V_shared, out, policy=T.GemmWarpPolicy.FullRow)
            for i, j in T.Parallel(block_M, dim):
                out[i, j] /= total[i]
            T.copy(out, O[bz, by, row : row + block_M, :])

    return main
