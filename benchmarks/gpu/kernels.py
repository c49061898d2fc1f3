"""The kernels that are measured on a GPU, as users write them: `TEXTS` are the whole texts, `kernel` fills in a case."""

from __future__ import annotations

import math
from typing import Any

from cases import Attention, Case, Gemm, Gemv, Mla
from configs import AttentionConfig, Config, GemmConfig, GemvConfig, MlaConfig

import tilelang.language as T


def gemm(M, N, K, dtype, out_dtype, transpose_B, block_M, block_N, block_K, stages, threads, panel, cluster=None):  # type: ignore[no-untyped-def]
    accum = "int32" if dtype == "int8" else "float32"
    B_shape, B_tile = ((N, K), (block_N, block_K)) if transpose_B else ((K, N), (block_K, block_N))

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor(B_shape, dtype), C: T.Tensor((M, N), out_dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads, cluster_dims=cluster) as (bx, by):
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
    M, N, K, dtype, out_dtype, transpose_B, block_M, block_N, block_K, stages, threads, panel, blocks, staged, pair=1
):
    """As many blocks as multiprocessors, which never leave: the loads of a tile begin while the one before is stored."""
    accum = "int32" if dtype == "int8" else "float32"
    B_shape, B_tile = ((N, K), (block_N, block_K)) if transpose_B else ((K, N), (block_K, block_N))

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor(B_shape, dtype), C: T.Tensor((M, N), out_dtype)):
        with T.Kernel(blocks, threads=threads, cluster_dims=pair) as block:
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared(B_tile, dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum)
            if staged:
                C_shared = T.alloc_shared((block_M, block_N), out_dtype)
            tiles = [T.ceildiv(M, block_M * pair), T.ceildiv(N, block_N)]
            for row, bx in T.Persistent(tiles, blocks // pair, block // pair, panel // pair):
                by = row * pair + T.block_rank_in_cluster()  # the blocks of a cluster share the columns of B
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
    scale, tiles = math.log2(math.e) / math.sqrt(dim), T.ceildiv(tokens, block_M)
    grid = (heads, tiles) if causal else (tiles, heads)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, tokens, dim), dtype),
        K: T.Tensor((batch, heads_kv, tokens, dim), dtype),
        V: T.Tensor((batch, heads_kv, tokens, dim), dtype),
        O: T.Tensor((batch, heads, tokens, dim), dtype),
    ):
        with T.Kernel(*grid, batch, threads=threads) as (gx, gy, bz):
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

            # With a causal mask the last queries have the most work: those of all heads begin first.
            row, by = (tiles - 1 - gy if causal else gx) * block_M, gx if causal else gy
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


def attention_persistent(  # type: ignore[no-untyped-def]
    batch, heads, heads_kv, tokens, dim, causal, dtype, block_M, block_N, stages, threads, blocks, section, lag, pair
):
    """As many blocks as multiprocessors, which never leave: the queries and keys of a tile come beside the end of the one
    before. `section` heads at a time, whose keys and values stay in the L2 cache. A row's maximum follows when it is `lag`
    powers of 2 behind: weights up to 2^8 are as exact as those up to 1, and hardly a step then scales the output. `pair`:
    blocks of a cluster, which have neighbouring tiles of a head and read its keys and values once, if the mask is full."""
    group, rows = heads // heads_kv, -(-tokens // (block_M * pair))
    crossed = block_M // block_N + 2 * (block_M % block_N > 0) if causal else int(tokens % block_N > 0)
    scale, tiles, sections = math.log2(math.e) / math.sqrt(dim), batch * heads * rows, batch * heads // section

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, tokens, dim), dtype),
        K: T.Tensor((batch, heads_kv, tokens, dim), dtype),
        V: T.Tensor((batch, heads_kv, tokens, dim), dtype),
        O: T.Tensor((batch, heads, tokens, dim), dtype),
    ):
        with T.Kernel(pair, blocks, threads=threads, cluster_dims=(pair, 1) if pair > 1 else None) as (member, block):
            Q_shared, K_shared, V_shared = (T.alloc_shared((n, dim), dtype) for n in (block_M, block_N, block_N))
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            out = T.alloc_fragment((block_M, dim), "float32")
            largest, before, rescale, tile_sum, total = (T.alloc_fragment((block_M,), "float32") for _ in range(5))

            # Tiles become longer and shorter by turns from section to section, ending with the shortest, and every second
            # turn gives them to the blocks in reverse: all blocks have as much work, without asking each other.
            final = blocks - 1 - block if tiles // blocks % 2 else block  # this block's tile in the last turn
            for turn in T.serial(T.ceildiv(tiles - final, blocks)):
                tile = turn * blocks + T.if_then_else(turn % 2 == 0, block, blocks - 1 - block)
                part, place = tile // (section * rows), tile // section % rows
                head = part * section + tile % section
                bz, by = head // heads, head % heads
                row = (T.if_then_else((sections - part) % 2 == 0, place, rows - 1 - place) * pair + member) * block_M
                T.copy(Q[bz, by, row : row + block_M, :], Q_shared)
                T.clear(out)
                T.clear(total)
                T.fill(largest, -1e30)  # finite: a first tile may hold no key that a row sees
                last = T.ceildiv(T.min(row + block_M, tokens) if causal else tokens, block_N) - 1
                for step in T.Pipelined(last + 1, num_stages=stages):
                    k = last - step  # backwards: the first steps are those that the diagonal crosses
                    T.copy(K[bz, by // group, k * block_N : (k + 1) * block_N, :], K_shared)
                    T.clear(scores)
                    T.gemm(Q_shared, K_shared, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                    if step < crossed:  # the diagonal or the end may cross the tile
                        for i, j in T.Parallel(block_M, block_N):
                            seen = k * block_N + j <= row + i if causal else k * block_N + j < tokens
                            scores[i, j] = T.if_then_else(seen, scores[i, j], -T.infinity("float32"))
                    T.copy(largest, before)
                    T.reduce_max(scores, largest, dim=1, clear=False)
                    for i in T.Parallel(block_M):
                        if lag:
                            largest[i] = T.if_then_else((largest[i] - before[i]) * scale > lag, largest[i], before[i])
                        rescale[i] = T.exp2((before[i] - largest[i]) * scale)
                    for i, j in T.Parallel(block_M, block_N):
                        scores[i, j] = T.exp2(scores[i, j] * scale - largest[i] * scale)
                    T.reduce_sum(scores, tile_sum, dim=1)
                    for i in T.Parallel(block_M):
                        total[i] = total[i] * rescale[i] + tile_sum[i]
                    T.copy(scores, weights)
                    for i, j in T.Parallel(block_M, dim):
                        if not lag or rescale[i] != 1:
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


# Two tiles of keys in each step, one for each of two warpgroups; each has half of the output's columns and takes the other's
# weights from shared memory. One computes weights beside products of the other. Whole pairs of tiles.
def mla_pairs(batch, heads, tokens, dim, pe_dim, dtype, block_H, block_N, stages, threads):  # type: ignore[no-untyped-def]
    scale, half, steps = math.log2(math.e) / math.sqrt(dim + pe_dim), dim // 2, tokens // (2 * block_N)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, dim), dtype),
        Q_pe: T.Tensor((batch, heads, pe_dim), dtype),
        KV: T.Tensor((batch, tokens, 1, dim), dtype),
        K_pe: T.Tensor((batch, tokens, 1, pe_dim), dtype),
        Output: T.Tensor((batch, heads, dim), dtype),
    ):
        with T.Kernel(heads // block_H, batch, threads=threads) as (by, bx):
            Q_tile = T.alloc_shared((block_H, dim), dtype)
            kv = [T.alloc_shared((block_N, half), dtype) for _ in range(4)]  # halves of tile 0, halves of tile 1
            rotated = [T.alloc_shared((block_N, pe_dim), dtype) for _ in range(2)]
            weights = [T.alloc_shared((block_H, block_N), dtype) for _ in range(2)]  # the second has Q_pe before
            maxima, sums = ([T.alloc_shared((block_H,), "float32") for _ in range(2)] for _ in range(2))
            full, empty, passed, summed = (T.alloc_barrier([128] * n) for n in (4, 4, 2, 2))
            with T.ws(2):  # brings the tiles
                T.dec_max_nreg(24)
                T.tma_copy(Q[bx, by * block_H : (by + 1) * block_H, :], Q_tile, barrier=full[0])
                T.tma_copy(Q_pe[bx, by * block_H : (by + 1) * block_H, :], weights[1], barrier=full[0])
                for i in T.serial(steps):
                    for n in (0, 1, 3, 2):  # as they are used
                        key, part = (2 * i + n // 2) * block_N, n % 2 * half
                        T.mbarrier_wait_parity(empty[n], i % 2 ^ 1)
                        T.tma_copy(KV[bx, key : key + block_N, 0, part : part + half], kv[n], barrier=full[n])
                        if n in (0, 3):
                            T.tma_copy(K_pe[bx, key : key + block_N, 0, :], rotated[n // 2], barrier=full[n])
                        T.mbarrier_arrive(full[n])
            for me in (0, 1):  # the number of a warpgroup, of its tile of a pair, and of its half of the output
                with T.ws(me):
                    T.inc_max_nreg(240)
                    q_pe = T.alloc_fragment((block_H, pe_dim), dtype)
                    scores, out = (T.alloc_fragment((block_H, n), "float32") for n in (block_N, half))
                    largest, old, rescale, part, total = (T.alloc_fragment((block_H,), "float32") for _ in range(5))
                    for tile, value in ((out, 0), (total, 0), (largest, -T.infinity("float32"))):
                        T.fill(tile, value)
                    T.mbarrier_wait_parity(full[0], 0)
                    T.copy(weights[1], q_pe)
                    for i in T.serial(steps):
                        T.mbarrier_wait_parity(full[3 * me], i % 2)
                        T.wgmma_gemm(q_pe, rotated[me], scores, transpose_B=True, clear_accum=True)
                        T.wgmma_gemm(Q_tile[:, me * half : (me + 1) * half], kv[3 * me], scores, transpose_B=True)
                        T.mbarrier_wait_parity(full[1 + me], i % 2)
                        T.wgmma_gemm(Q_tile[:, (1 - me) * half : (2 - me) * half], kv[1 + me], scores, transpose_B=True)
                        for tile in (0, 1):
                            T.copy(largest, old)
                            if tile == me:
                                T.reduce_max(scores, largest, dim=1, clear=False)
                                for r in T.Parallel(block_H):  # the maximum follows when it is 2^8 behind
                                    largest[r] = T.if_then_else((largest[r] - old[r]) * scale > 8, largest[r], old[r])
                                for r, c in T.Parallel(block_H, block_N):
                                    scores[r, c] = T.exp2(scores[r, c] * scale - largest[r] * scale)
                                T.copy(scores, weights[me])
                                T.copy(largest, maxima[me])
                                T.fence_proxy_async()
                                T.wait_wgmma(me)  # the second one's product with the first tile goes on
                                T.mbarrier_arrive(passed[me])
                                T.reduce_sum(scores, part, dim=1)
                            T.mbarrier_wait_parity(passed[tile], i % 2)
                            T.copy(maxima[tile], largest)
                            for r in T.Parallel(block_H):
                                rescale[r] = T.exp2((old[r] - largest[r]) * scale)
                                total[r] = total[r] * rescale[r] + (part[r] if tile == me else 0)
                            for r, c in T.Parallel(block_H, half):
                                if rescale[r] != 1:
                                    out[r, c] *= rescale[r]
                            if tile == 1:
                                T.mbarrier_arrive(empty[me])
                            T.wgmma_gemm(weights[tile], kv[2 * tile + me], out)
                        T.mbarrier_arrive(empty[2 + me])
                    T.copy(total, sums[me])
                    T.mbarrier_arrive(summed[me])
                    T.mbarrier_wait_parity(summed[1 - me], 0)
                    for r, c in T.Parallel(block_H, half):
                        out[r, c] /= total[r] + sums[1 - me][r]
                    T.copy(out, Output[bx, by * block_H : (by + 1) * block_H, me * half : (me + 1) * half])

    return main


# The texts, and the lines that each may have.
TEXTS = {gemm: 25, gemm_persistent: 35, gemv: 30, attention: 70, attention_persistent: 70, mla: 80, mla_pairs: 80}


def kernel(case: Case, config: Config) -> Any:
    """The kernel's function for a case."""
    if isinstance(case, Gemm):
        assert isinstance(config, GemmConfig)
        c, dtype = config, "float32" if case.dtype == "tf32" else case.dtype
        shape = (c.block_m, c.block_n, c.block_k, c.stages, c.threads, c.panel)
        arguments = (case.m, case.n, case.k, dtype, case.out_dtype, case.transpose_b, *shape)
        return (
            gemm_persistent(*arguments, c.blocks, c.staged, c.cluster[1]) if c.blocks else gemm(*arguments, c.cluster)
        )
    if isinstance(case, Gemv):
        assert isinstance(config, GemvConfig)
        policy = "evict_first" if config.once else None
        tiles = (config.block_n, config.block_k, config.threads, config.stages)
        return gemv(case.n, case.k, case.dtype, *tiles, policy)
    if isinstance(case, Attention):
        assert isinstance(config, AttentionConfig)
        shape = (case.batch, case.heads, case.heads_kv, case.tokens, case.dim, case.causal, case.dtype)
        tile = (config.block_m, config.block_n, config.stages, config.threads)
        if config.blocks:
            return attention_persistent(
                *shape, *tile, config.blocks // config.pair, config.section, config.lag, config.pair
            )
        return attention(*shape, *tile)
    assert isinstance(case, Mla)
    assert isinstance(config, MlaConfig)
    text = mla_pairs if config.pairs else mla
    shape = (case.batch, case.heads, case.tokens, case.dim, case.pe_dim, case.dtype)
    return text(*shape, config.block_h, config.block_n, config.stages, config.threads)
