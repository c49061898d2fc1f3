"""The kernels that are measured on a GPU, as users write them: `TEXTS` are the whole texts, `kernel` fills in a case."""

from __future__ import annotations

import math
from typing import Any

from cases import Attention, Case, Gemm, Gemv, Mla
from configs import AttentionConfig, Config, GemmConfig, GemvConfig, MlaConfig

import tilelang.language as T


def gemm(M, N, K, dtype, out_dtype, transpose_B, block_M, block_N, block_K, stages, threads, panel):  # type: ignore[no-untyped-def]
    accum = "int32" if dtype == "int8" else "float32"
    B_shape, B_tile = ((N, K), (block_N, block_K)) if transpose_B else ((K, N), (block_K, block_N))

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor(B_shape, dtype), C: T.Tensor((M, N), out_dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared(B_tile, dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum)
            T.use_swizzle(max(panel, 1), enable=panel > 0)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                T.copy(A[by * block_M, k * block_K], A_shared)
                if transpose_B:
                    T.copy(B[bx * block_N, k * block_K], B_shared)
                else:
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_B=transpose_B)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def gemm_persistent(  # type: ignore[no-untyped-def]
    M, N, K, dtype, out_dtype, transpose_B, block_M, block_N, block_K, stages, threads, panel, blocks, staged
):
    """As many blocks as multiprocessors, which never leave: the loads of a tile begin while the one before is stored."""
    accum = "int32" if dtype == "int8" else "float32"
    B_shape, B_tile = ((N, K), (block_N, block_K)) if transpose_B else ((K, N), (block_K, block_N))

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor(B_shape, dtype), C: T.Tensor((M, N), out_dtype)):
        with T.Kernel(blocks, threads=threads) as block:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared(B_tile, dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum)
            if staged:
                C_shared = T.alloc_shared((block_M, block_N), out_dtype)
            for by, bx in T.Persistent([T.ceildiv(M, block_M), T.ceildiv(N, block_N)], blocks, block, panel):
                T.clear(C_local)
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                    T.copy(A[by * block_M, k * block_K], A_shared)
                    if transpose_B:
                        T.copy(B[bx * block_N, k * block_K], B_shared)
                    else:
                        T.copy(B[k * block_K, bx * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local, transpose_B=transpose_B)
                if staged:
                    T.copy(C_local, C_shared)
                    T.copy(C_shared, C[by * block_M, bx * block_N])
                else:
                    T.copy(C_local, C[by * block_M, bx * block_N])

    return main


def gemv(N, K, dtype, block_N, block_K, threads, stages, policy):  # type: ignore[no-untyped-def]
    vector = 16 // 2  # values of 16 bytes

    @T.prim_func
    def main(W: T.Tensor((N, K), dtype), x: T.Tensor((K,), dtype), y: T.Tensor((N,), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bn:
            W_local = T.alloc_fragment((block_N, block_K), dtype)
            x_local = T.alloc_fragment((block_K,), dtype)
            sums = T.alloc_fragment((block_N, block_K // vector), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            if stages:
                W_shared = T.alloc_shared((block_N, block_K), dtype)
            T.clear(sums)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                if stages:
                    T.copy(W[bn * block_N, k * block_K], W_shared)
                    T.copy(W_shared, W_local)
                else:  # straight to registers
                    T.copy(W[bn * block_N, k * block_K], W_local, eviction_policy=policy)
                T.copy(x[k * block_K], x_local)
                for i, j in T.Parallel(block_N, block_K // vector):
                    for v in T.serial(vector):
                        sums[i, j] += T.cast(W_local[i, j * vector + v], "float32") * x_local[j * vector + v]
            T.reduce_sum(sums, total, dim=1)
            T.copy(total, y[bn * block_N])

    return main


def attention(batch, heads, heads_kv, tokens, dim, causal, dtype, block_M, block_N, stages, threads):  # type: ignore[no-untyped-def]
    group = heads // heads_kv
    scale = math.log2(math.e) / math.sqrt(dim)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, tokens, dim), dtype),
        K: T.Tensor((batch, heads_kv, tokens, dim), dtype),
        V: T.Tensor((batch, heads_kv, tokens, dim), dtype),
        O: T.Tensor((batch, heads, tokens, dim), dtype),
    ):
        with T.Kernel(T.ceildiv(tokens, block_M), heads, batch, threads=threads) as (bx, by, bz):
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
            end = T.min(row + block_M, tokens) if causal else tokens
            for k in T.Pipelined(T.ceildiv(end, block_N), num_stages=stages):
                T.copy(K[bz, by // group, k * block_N : (k + 1) * block_N, :], K_shared)
                T.clear(scores)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                if causal or tokens % block_N:
                    if (k + 1) * block_N > (row if causal else tokens):  # a tile that the diagonal or the end crosses
                        for i, j in T.Parallel(block_M, block_N):
                            seen = k * block_N + j <= row + i if causal else k * block_N + j < tokens
                            scores[i, j] = T.if_then_else(seen, scores[i, j], -T.infinity("float32"))
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


def mla(batch, heads, tokens, dim, pe_dim, dtype, block_H, block_N, stages, threads):  # type: ignore[no-untyped-def]
    """As appendix B.3 of the TileLang paper prints it, for one latent that all heads share; whole tiles of keys."""
    scale = math.log2(math.e) / math.sqrt(dim + pe_dim)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        Q_pe: T.Tensor((batch, heads, pe_dim), dtype),
        KV: T.Tensor((batch, tokens, 1, dim), dtype),
        K_pe: T.Tensor((batch, tokens, 1, pe_dim), dtype),
        Output: T.Tensor((batch, heads, dim), dtype),
    ):
        with T.Kernel(batch, heads // block_H, threads=threads) as (bx, by):
            Q_shared = T.alloc_shared((block_H, dim), dtype)
            S_shared = T.alloc_shared((block_H, block_N), dtype)
            Q_pe_shared = T.alloc_shared((block_H, pe_dim), dtype)
            KV_shared = T.alloc_shared((block_N, dim), dtype)
            K_pe_shared = T.alloc_shared((block_N, pe_dim), dtype)
            O_shared = T.alloc_shared((block_H, dim), dtype)
            acc_s = T.alloc_fragment((block_H, block_N), "float32")
            acc_o = T.alloc_fragment((block_H, dim), "float32")
            scores_max = T.alloc_fragment((block_H,), "float32")
            scores_max_prev = T.alloc_fragment((block_H,), "float32")
            scores_scale = T.alloc_fragment((block_H,), "float32")
            scores_sum = T.alloc_fragment((block_H,), "float32")
            logsum = T.alloc_fragment((block_H,), "float32")

            T.use_swizzle(10)
            T.copy(Q[bx, by * block_H : (by + 1) * block_H, :], Q_shared)
            T.copy(Q_pe[bx, by * block_H : (by + 1) * block_H, :], Q_pe_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(scores_max, -T.infinity("float32"))
            for k in T.Pipelined(T.ceildiv(tokens, block_N), num_stages=stages):
                T.copy(KV[bx, k * block_N : (k + 1) * block_N, 0, :], KV_shared)
                T.copy(K_pe[bx, k * block_N : (k + 1) * block_N, 0, :], K_pe_shared)
                T.clear(acc_s)
                T.gemm(Q_shared, KV_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                T.gemm(Q_pe_shared, K_pe_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                T.copy(scores_max, scores_max_prev)
                T.fill(scores_max, -T.infinity("float32"))
                T.reduce_max(acc_s, scores_max, dim=1, clear=False)
                for i in T.Parallel(block_H):
                    scores_scale[i] = T.exp2(scores_max_prev[i] * scale - scores_max[i] * scale)
                for i, j in T.Parallel(block_H, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - scores_max[i] * scale)
                T.reduce_sum(acc_s, scores_sum, dim=1)
                T.copy(acc_s, S_shared)
                for i in T.Parallel(block_H):
                    logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
                for i, j in T.Parallel(block_H, dim):
                    acc_o[i, j] *= scores_scale[i]
                T.gemm(S_shared, KV_shared, acc_o, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(block_H, dim):
                acc_o[i, j] /= logsum[i]
            T.copy(acc_o, O_shared)
            T.copy(O_shared, Output[bx, by * block_H : (by + 1) * block_H, :])

    return main


def mla_pairs(batch, heads, tokens, dim, pe_dim, dtype, block_H, block_N, stages, threads):  # type: ignore[no-untyped-def]
    """Two tiles of keys in each step: one maximum and one rescaling of the output for both; whole pairs of tiles."""
    scale = math.log2(math.e) / math.sqrt(dim + pe_dim)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        Q_pe: T.Tensor((batch, heads, pe_dim), dtype),
        KV: T.Tensor((batch, tokens, 1, dim), dtype),
        K_pe: T.Tensor((batch, tokens, 1, pe_dim), dtype),
        Output: T.Tensor((batch, heads, dim), dtype),
    ):
        with T.Kernel(batch, heads // block_H, threads=threads) as (bx, by):
            Q_tile = T.alloc_shared((block_H, dim), dtype)
            Q_pe_tile = T.alloc_shared((block_H, pe_dim), dtype)
            even, even_pe = T.alloc_shared((block_N, dim), dtype), T.alloc_shared((block_N, pe_dim), dtype)
            odd, odd_pe = T.alloc_shared((block_N, dim), dtype), T.alloc_shared((block_N, pe_dim), dtype)
            weights = T.alloc_shared((block_H, block_N), dtype)
            s0 = T.alloc_fragment((block_H, block_N), "float32")
            s1 = T.alloc_fragment((block_H, block_N), "float32")
            out = T.alloc_fragment((block_H, dim), "float32")
            largest = T.alloc_fragment((block_H,), "float32")
            before = T.alloc_fragment((block_H,), "float32")
            rescale = T.alloc_fragment((block_H,), "float32")
            tile_sum = T.alloc_fragment((block_H,), "float32")
            total = T.alloc_fragment((block_H,), "float32")

            head = by * block_H
            T.copy(Q[bx, head : head + block_H, :], Q_tile)
            T.copy(Q_pe[bx, head : head + block_H, :], Q_pe_tile)
            T.clear(out)
            T.clear(total)
            T.fill(largest, -T.infinity("float32"))
            for k in T.Pipelined(T.ceildiv(tokens, 2 * block_N), num_stages=stages):
                key = 2 * k * block_N
                T.copy(KV[bx, key : key + block_N, 0, :], even)
                T.copy(K_pe[bx, key : key + block_N, 0, :], even_pe)
                T.copy(KV[bx, key + block_N : key + 2 * block_N, 0, :], odd)
                T.copy(K_pe[bx, key + block_N : key + 2 * block_N, 0, :], odd_pe)
                T.gemm(Q_tile, even, s0, transpose_B=True, policy=T.GemmWarpPolicy.FullCol, clear_accum=True)
                T.gemm(Q_pe_tile, even_pe, s0, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                T.gemm(Q_tile, odd, s1, transpose_B=True, policy=T.GemmWarpPolicy.FullCol, clear_accum=True)
                T.gemm(Q_pe_tile, odd_pe, s1, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
                T.copy(largest, before)
                T.reduce_max(s0, largest, dim=1, clear=False)
                T.reduce_max(s1, largest, dim=1, clear=False)
                for i in T.Parallel(block_H):
                    rescale[i] = T.exp2((before[i] - largest[i]) * scale)
                for i, j in T.Parallel(block_H, block_N):
                    s0[i, j] = T.exp2(s0[i, j] * scale - largest[i] * scale)
                    s1[i, j] = T.exp2(s1[i, j] * scale - largest[i] * scale)
                T.reduce_sum(s0, tile_sum, dim=1)
                T.reduce_sum(s1, tile_sum, dim=1, clear=False)
                for i in T.Parallel(block_H):
                    total[i] = total[i] * rescale[i] + tile_sum[i]
                for i, j in T.Parallel(block_H, dim):
                    out[i, j] *= rescale[i]
                T.copy(s0, weights)
                T.gemm(weights, even, out, policy=T.GemmWarpPolicy.FullCol)
                T.copy(s1, weights)
                T.gemm(weights, odd, out, policy=T.GemmWarpPolicy.FullCol)
            for i, j in T.Parallel(block_H, dim):
                out[i, j] /= total[i]
            T.copy(out, Output[bx, head : head + block_H, :])

    return main


# The texts, and the lines that each may have.
TEXTS = {gemm: 25, gemm_persistent: 35, gemv: 30, attention: 70, mla: 80, mla_pairs: 80}


def kernel(case: Case, config: Config) -> Any:
    """The kernel's function for a case."""
    if isinstance(case, Gemm):
        assert isinstance(config, GemmConfig)
        c, dtype = config, "float32" if case.dtype == "tf32" else case.dtype
        shape = (c.block_m, c.block_n, c.block_k, c.stages, c.threads, c.panel)
        arguments = (case.m, case.n, case.k, dtype, case.out_dtype, case.transpose_b, *shape)
        return gemm_persistent(*arguments, c.blocks, c.staged) if c.blocks else gemm(*arguments)
    if isinstance(case, Gemv):
        assert isinstance(config, GemvConfig)
        policy = "evict_first" if config.once else None
        tiles = (config.block_n, config.block_k, config.threads, config.stages)
        return gemv(case.n, case.k, case.dtype, *tiles, policy)
    if isinstance(case, Attention):
        assert isinstance(config, AttentionConfig)
        shape = (case.batch, case.heads, case.heads_kv, case.tokens, case.dim, case.causal, case.dtype)
        return attention(*shape, config.block_m, config.block_n, config.stages, config.threads)
    assert isinstance(case, Mla)
    assert isinstance(config, MlaConfig)
    text = mla_pairs if config.pairs else mla
    shape = (case.batch, case.heads, case.tokens, case.dim, case.pe_dim, case.dtype)
    return text(*shape, config.block_h, config.block_n, config.stages, config.threads)
