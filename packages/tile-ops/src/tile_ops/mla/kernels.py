"""Decoding with multi-head latent attention in tile language: one query per head against a paged cache of latents.

Q_nope: (batch, heads, dim), Q_rope: (batch, heads, rope); Cache: (pages, page, dim + rope), where a token's row is its
latent, key and value at once, and then its rotated key; Table: (batch, columns) int32, the pages of each sequence in
order; Lengths: (batch,) int32. score = (Q_nope . latent + Q_rope . rotated) * scale, and the output is the mean of the
latents weighted by softmax. Scores, sums and outputs are float32 in registers. `scale` comes multiplied by log2(e).

`decode` gives a block of heads all keys of its sequence; `decode_part` one of `parts` equal shares, which `combine`
merges; `decode_pairs` and `decode_pairs_part` do the same with two tiles of keys at a time (Hopper). DeepSeek-V2 (2024),
section 2.1 and appendix C, with W^UK and W^UV taken into the query and the output.
"""

import tilelang.language as T

INFINITY = float("inf")
PAIR = 64  # heads of a block, and keys of each of the two tiles, in the kernels that take pairs of tiles
BEHIND = 8  # powers of two that a pair's maximum may be behind: weights stay below 256, and most tiles rescale nothing
LN_2 = 0.6931471805599453


@T.macro
def weigh(scores, largest, total, out, scale, steady):
    """Scores become weights under the new maximum; what was summed under the old one is rescaled. `steady`: rows whose maximum
    stays are left alone, where a row is a loop."""
    block_h, dim = out.shape
    before = T.alloc_fragment((block_h,), "float32")
    rescale = T.alloc_fragment((block_h,), "float32")
    tile_sum = T.alloc_fragment((block_h,), "float32")

    T.copy(largest, before)
    T.reduce_max(scores, largest, dim=1, clear=False)
    for i in T.Parallel(block_h):
        rescale[i] = T.exp2((before[i] - largest[i]) * scale)
    for i, j in T.Parallel(block_h, scores.shape[1]):
        scores[i, j] = T.exp2(scores[i, j] * scale - largest[i] * scale)
    T.reduce_sum(scores, tile_sum, dim=1)
    for i in T.Parallel(block_h):
        total[i] = total[i] * rescale[i] + tile_sum[i]
    for i, j in T.Parallel(block_h, dim):
        if not steady or rescale[i] != 1:
            out[i, j] *= rescale[i]


@T.macro
def attend(
    Q_nope, Q_rope, Cache, Table, b, head, first, last, length, out, largest, total, block_n, stages, scale, steady
):
    """Tiles `first <= tile < last` of sequence `b`: the unnormalised sum, the largest score and the weights' sum."""
    block_h, dim = out.shape
    pages, page, _ = Cache.shape
    rope, dtype = Q_rope.shape[-1], Cache.dtype
    Q_tile = T.alloc_shared((block_h, dim), dtype)
    Q_rope_tile = T.alloc_shared((block_h, rope), dtype)
    latent, rotated = T.alloc_shared((block_n, dim), dtype), T.alloc_shared((block_n, rope), dtype)
    tail, tail_rotated = T.alloc_shared((block_n, dim), dtype), T.alloc_shared((block_n, rope), dtype)
    weights = T.alloc_shared((block_h, block_n), dtype)
    scores = T.alloc_fragment((block_h, block_n), "float32")

    T.copy(Q_nope[b, head : head + block_h, :], Q_tile)
    T.copy(Q_rope[b, head : head + block_h, :], Q_rope_tile)
    T.clear(out)
    T.clear(total)
    T.fill(largest, -INFINITY)
    whole = T.max(T.min(last, length // block_n), first)
    for k in T.Pipelined(whole - first, num_stages=stages):
        key = (first + k) * block_n
        where = Table[b, key // page]
        row = key % page
        T.copy(Cache[where, row : row + block_n, 0:dim], latent)
        T.copy(Cache[where, row : row + block_n, dim : dim + rope], rotated)
        T.gemm(Q_tile, latent, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol, clear_accum=True)
        T.gemm(Q_rope_tile, rotated, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
        weigh(scores, largest, total, out, scale, steady)
        # `out` is wide: each warp owns some of its columns and needs all weights, hence shared memory.
        T.copy(scores, weights)
        T.gemm(weights, latent, out, policy=T.GemmWarpPolicy.FullCol)
    # Rows past the length may hold anything, NaN too, and 0 * NaN is NaN: the last tile comes with zeros there.
    key = whole * block_n
    where = Table[b, key // page]
    row = key % page
    if whole < last and where >= 0 and where < pages:
        for i, j in T.Parallel(block_n, dim):
            tail[i, j] = T.if_then_else(key + i < length, Cache[where, row + i, j], 0)
        for i, j in T.Parallel(block_n, rope):
            tail_rotated[i, j] = T.if_then_else(key + i < length, Cache[where, row + i, dim + j], 0)
        T.gemm(Q_tile, tail, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol, clear_accum=True)
        T.gemm(Q_rope_tile, tail_rotated, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol)
        for i, j in T.Parallel(block_h, block_n):
            scores[i, j] = T.if_then_else(key + j < length, scores[i, j], -INFINITY)
        weigh(scores, largest, total, out, scale, steady)
        T.copy(scores, weights)
        T.gemm(weights, tail, out, policy=T.GemmWarpPolicy.FullCol)


def decode(dtype, dim, rope, page, block_h, block_n, stages, threads, steady=False):
    """A block takes `block_h` heads of a sequence and all its keys. Lse: natural logarithm of the weights' sum."""
    batch, heads, pages, columns = T.dynamic("batch"), T.dynamic("heads"), T.dynamic("pages"), T.dynamic("columns")

    @T.prim_func
    def mla_decode(
        Q_nope: T.Tensor((batch, heads, dim), dtype),
        Q_rope: T.Tensor((batch, heads, rope), dtype),
        Cache: T.Tensor((pages, page, dim + rope), dtype),
        Table: T.Tensor((batch, columns), "int32"),
        Lengths: T.Tensor((batch,), "int32"),
        Output: T.Tensor((batch, heads, dim), dtype),
        Lse: T.Tensor((batch, heads), "float32"),
        scale: T.float32,
    ):
        with T.Kernel(T.ceildiv(heads, block_h), batch, threads=threads) as (bx, b):
            out = T.alloc_fragment((block_h, dim), "float32")
            largest = T.alloc_fragment((block_h,), "float32")
            total = T.alloc_fragment((block_h,), "float32")
            head = bx * block_h
            length = T.max(T.min(Lengths[b], columns * page), 0)
            last = T.ceildiv(length, block_n)
            where = (b, head, 0, last, length)
            attend(Q_nope, Q_rope, Cache, Table, *where, out, largest, total, block_n, stages, scale, steady)
            for i, j in T.Parallel(block_h, dim):
                out[i, j] = T.if_then_else(total[i] == 0, 0, out[i, j] / total[i])
            T.copy(out, Output[b, head : head + block_h, :])
            for i in T.Parallel(block_h):
                Lse[b, head + i] = (largest[i] * scale + T.log2(total[i])) * LN_2  # -infinity without keys

    return mla_decode


def decode_part(dtype, dim, rope, page, block_h, block_n, stages, threads, steady=False):
    """A block takes `block_h` heads and one part of the keys. Means: its mean, Logs: log2 of its weights' sum."""
    batch, heads, pages, columns = T.dynamic("batch"), T.dynamic("heads"), T.dynamic("pages"), T.dynamic("columns")
    parts = T.dynamic("parts")

    @T.prim_func
    def mla_decode_part(
        Q_nope: T.Tensor((batch, heads, dim), dtype),
        Q_rope: T.Tensor((batch, heads, rope), dtype),
        Cache: T.Tensor((pages, page, dim + rope), dtype),
        Table: T.Tensor((batch, columns), "int32"),
        Lengths: T.Tensor((batch,), "int32"),
        Means: T.Tensor((batch, parts, heads, dim), "float32"),
        Logs: T.Tensor((batch, parts, heads), "float32"),
        scale: T.float32,
    ):
        with T.Kernel(T.ceildiv(heads, block_h), parts, batch, threads=threads) as (bx, part, b):
            out = T.alloc_fragment((block_h, dim), "float32")
            largest = T.alloc_fragment((block_h,), "float32")
            total = T.alloc_fragment((block_h,), "float32")
            head = bx * block_h
            length = T.max(T.min(Lengths[b], columns * page), 0)
            tiles = T.ceildiv(length, block_n)
            share = T.ceildiv(tiles, parts)
            first = T.min(part * share, tiles)  # the last parts of a short sequence have no keys
            last = T.min(first + share, tiles)
            where = (b, head, first, last, length)
            attend(Q_nope, Q_rope, Cache, Table, *where, out, largest, total, block_n, stages, scale, steady)
            for i, j in T.Parallel(block_h, dim):
                Means[b, part, head + i, j] = T.if_then_else(total[i] == 0, 0, out[i, j] / total[i])
            for i in T.Parallel(block_h):
                Logs[b, part, head + i] = largest[i] * scale + T.log2(total[i])  # -infinity without keys

    return mla_decode_part


@T.macro
def attend_pairs(Q_nope, Q_rope, Cache, Table, b, head, first, last, length, scale, finish, results):
    """Tiles `first <= tile < last` of sequence `b`, two in each step: what `attend` leaves goes to `finish`, by halves.

    Each of two warpgroups has one tile of a pair and one half of the output's columns; it takes the other tile's weights
    from shared memory. So one computes weights beside products of the other, and each product has all rows at once. A
    third warpgroup brings the tiles, in halves, as each is let go of. The two hand the maximum of all tiles so far back
    and forth: tile 0's has all tiles before it, tile 1's that of tile 0; it follows when it is `BEHIND`. After Liu and others'
    FlashMLA, 2025.
    """
    page, row = Cache.shape[1:]
    rope, dtype = Q_rope.shape[-1], Cache.dtype
    dim = row - rope
    half, steps, end = dim // 2, T.ceildiv(last - first, 2), T.min(last * PAIR, length)
    Q_tile = T.alloc_shared((PAIR, dim), dtype)
    latent = [T.alloc_shared((PAIR, half), dtype) for _ in range(4)]  # the halves of tile 0, then those of tile 1
    rotated = [T.alloc_shared((PAIR, rope), dtype) for _ in range(2)]
    weights = [T.alloc_shared((PAIR, PAIR), dtype) for _ in range(2)]  # the second has Q_rope first: no room for more
    maxima, sums = ([T.alloc_shared((PAIR,), "float32") for _ in range(2)] for _ in range(2))
    queries = T.alloc_barrier(128)
    full, empty, passed, summed = (T.alloc_barrier([128] * n) for n in (4, 4, 2, 2))

    with T.ws(2):
        T.dec_max_nreg(24)
        T.tma_copy(Q_nope[b, head : head + PAIR, :], Q_tile, barrier=queries)
        T.tma_copy(Q_rope[b, head : head + PAIR, :], weights[1], barrier=queries)
        T.mbarrier_arrive(queries)
        for i in T.serial(steps):
            keys = [(first + 2 * i) * PAIR, T.min(first + 2 * i + 1, last - 1) * PAIR]
            pages = [Table[b, key // page] for key in keys]  # read before the waits
            for n in (0, 1, 3, 2):  # as they are used
                where, key, part = pages[n // 2], keys[n // 2] % page, n % 2 * half
                T.mbarrier_wait_parity(empty[n], i % 2 ^ 1)
                T.tma_copy(Cache[where, key : key + PAIR, part : part + half], latent[n], barrier=full[n])
                if n in (0, 3):
                    T.tma_copy(Cache[where, key : key + PAIR, dim:row], rotated[n // 2], barrier=full[n])
                T.mbarrier_arrive(full[n])
    for me in (0, 1):
        with T.ws(me):
            T.inc_max_nreg(240)
            q_rope = T.alloc_fragment((PAIR, rope), dtype)
            scores = T.alloc_fragment((PAIR, PAIR), "float32")
            out = T.alloc_fragment((PAIR, half), "float32")
            largest = T.alloc_fragment((PAIR,), "float32")
            before = T.alloc_fragment((PAIR,), "float32")
            rescale = T.alloc_fragment((PAIR,), "float32")
            tile_sum = T.alloc_fragment((PAIR,), "float32")
            total = T.alloc_fragment((PAIR,), "float32")
            T.clear(out)
            T.clear(total)
            T.fill(largest, -INFINITY)
            T.mbarrier_wait_parity(queries, 0)
            T.copy(weights[1], q_rope)
            for i in T.serial(steps):
                T.mbarrier_wait_parity(full[3 * me], i % 2)
                T.wgmma_gemm(q_rope, rotated[me], scores, transpose_B=True, clear_accum=True)
                T.wgmma_gemm(Q_tile[:, me * half : (me + 1) * half], latent[3 * me], scores, transpose_B=True)
                T.mbarrier_wait_parity(full[1 + me], i % 2)
                T.wgmma_gemm(Q_tile[:, (1 - me) * half : (2 - me) * half], latent[1 + me], scores, transpose_B=True)
                key = (first + 2 * i + me) * PAIR
                if key + PAIR > end:  # rows past the end may hold anything, NaN too, and 0 * NaN is NaN
                    for r, c in T.Parallel(PAIR, PAIR):
                        scores[r, c] = T.if_then_else(key + c < end, scores[r, c], -INFINITY)
                    for r, c in T.Parallel(PAIR, half):
                        if key + r >= end:
                            latent[2 * me][r, c] = 0
                            latent[2 * me + 1][r, c] = 0
                for tile in (0, 1):
                    T.copy(largest, before)
                    if tile == me:
                        T.reduce_max(scores, largest, dim=1, clear=False)
                        for r in T.Parallel(PAIR):
                            largest[r] = T.if_then_else(
                                (largest[r] - before[r]) * scale > BEHIND, largest[r], before[r]
                            )
                        for r, c in T.Parallel(PAIR, PAIR):
                            scores[r, c] = T.exp2(scores[r, c] * scale - largest[r] * scale)
                        T.copy(scores, weights[me])
                        T.copy(largest, maxima[me])
                        T.fence_proxy_async()
                        T.wait_wgmma(me)  # the second one's product with the first tile goes on
                        T.mbarrier_arrive(passed[me])
                        T.reduce_sum(scores, tile_sum, dim=1)
                    T.mbarrier_wait_parity(passed[tile], i % 2)
                    T.copy(maxima[tile], largest)
                    for r in T.Parallel(PAIR):
                        rescale[r] = T.exp2((before[r] - largest[r]) * scale)
                        total[r] = total[r] * rescale[r] + (tile_sum[r] if tile == me else 0)
                    for r, c in T.Parallel(PAIR, half):
                        if rescale[r] != 1:
                            out[r, c] *= rescale[r]
                    if tile == 1:
                        T.mbarrier_arrive(empty[me])
                    T.wgmma_gemm(weights[tile], latent[2 * tile + me], out)
                T.mbarrier_arrive(empty[2 + me])
            T.copy(total, sums[me])
            T.mbarrier_arrive(
                summed[me]
            )  # of its own: passed[me] may not end its last phase before the other has seen it
            T.mbarrier_wait_parity(summed[1 - me], 0)
            for r in T.Parallel(PAIR):
                total[r] += sums[1 - me][r]
            finish(me, out, largest, total, *results)


def decode_pairs(dtype, dim, rope, page):
    """As `decode`, 64 heads to a block. `rope` is 64, `page` a multiple of 64, `dim` one of 128, 512 at most."""
    batch, heads, pages, columns = T.dynamic("batch"), T.dynamic("heads"), T.dynamic("pages"), T.dynamic("columns")

    @T.macro
    def finish(me, out, largest, total, Output, Lse, b, head, scale):
        half = dim // 2
        for r, c in T.Parallel(PAIR, half):
            out[r, c] = T.if_then_else(total[r] == 0, 0, out[r, c] / total[r])
        T.copy(out, Output[b, head : head + PAIR, me * half : (me + 1) * half])
        if me == 0:
            for r in T.Parallel(PAIR):
                Lse[b, head + r] = (largest[r] * scale + T.log2(total[r])) * LN_2  # -infinity without keys

    @T.prim_func
    def mla_decode_pairs(
        Q_nope: T.Tensor((batch, heads, dim), dtype),
        Q_rope: T.Tensor((batch, heads, rope), dtype),
        Cache: T.Tensor((pages, page, dim + rope), dtype),
        Table: T.Tensor((batch, columns), "int32"),
        Lengths: T.Tensor((batch,), "int32"),
        Output: T.Tensor((batch, heads, dim), dtype),
        Lse: T.Tensor((batch, heads), "float32"),
        scale: T.float32,
    ):
        with T.Kernel(T.ceildiv(heads, PAIR), batch, threads=384) as (bx, b):
            head = bx * PAIR
            length = T.max(T.min(Lengths[b], columns * page), 0)
            last = T.ceildiv(length, PAIR)
            results = (Output, Lse, b, head, scale)
            attend_pairs(Q_nope, Q_rope, Cache, Table, b, head, 0, last, length, scale, finish, results)

    return mla_decode_pairs


def decode_pairs_part(dtype, dim, rope, page):
    """As `decode_part`, with the heads and sizes of `decode_pairs`."""
    batch, heads, pages, columns = T.dynamic("batch"), T.dynamic("heads"), T.dynamic("pages"), T.dynamic("columns")
    parts = T.dynamic("parts")

    @T.macro
    def finish(me, out, largest, total, Means, Logs, b, part, head, scale):
        half = dim // 2
        for r, c in T.Parallel(PAIR, half):
            Means[b, part, head + r, me * half + c] = T.if_then_else(total[r] == 0, 0, out[r, c] / total[r])
        if me == 0:
            for r in T.Parallel(PAIR):
                Logs[b, part, head + r] = largest[r] * scale + T.log2(total[r])  # -infinity without keys

    @T.prim_func
    def mla_decode_pairs_part(
        Q_nope: T.Tensor((batch, heads, dim), dtype),
        Q_rope: T.Tensor((batch, heads, rope), dtype),
        Cache: T.Tensor((pages, page, dim + rope), dtype),
        Table: T.Tensor((batch, columns), "int32"),
        Lengths: T.Tensor((batch,), "int32"),
        Means: T.Tensor((batch, parts, heads, dim), "float32"),
        Logs: T.Tensor((batch, parts, heads), "float32"),
        scale: T.float32,
    ):
        with T.Kernel(T.ceildiv(heads, PAIR), parts, batch, threads=384) as (bx, part, b):
            head = bx * PAIR
            length = T.max(T.min(Lengths[b], columns * page), 0)
            tiles = T.ceildiv(length, PAIR)
            share = T.ceildiv(tiles, parts)
            first = T.min(part * share, tiles)  # the last parts of a short sequence have no keys
            last = T.min(first + share, tiles)
            results = (Means, Logs, b, part, head, scale)
            attend_pairs(Q_nope, Q_rope, Cache, Table, b, head, first, last, length, scale, finish, results)

    return mla_decode_pairs_part


def combine(dtype, dim):
    """Parts of a head by their weights: Output is the mean of all keys, Lse the logarithm of their weights' sum."""
    batch, heads, parts = T.dynamic("batch"), T.dynamic("heads"), T.dynamic("parts")

    @T.prim_func
    def mla_combine(
        Means: T.Tensor((batch, parts, heads, dim), "float32"),
        Logs: T.Tensor((batch, parts, heads), "float32"),
        Output: T.Tensor((batch, heads, dim), dtype),
        Lse: T.Tensor((batch, heads), "float32"),
    ):
        with T.Kernel(heads, batch, threads=128) as (head, b):
            T.pdl_sync()
            out = T.alloc_fragment((dim,), "float32")
            largest = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.clear(out)
            T.clear(total)
            T.fill(largest, -INFINITY)
            for s in T.serial(parts):
                largest[0] = T.max(largest[0], Logs[b, s, head])
            for s in T.serial(parts):
                weight = T.if_then_else(Logs[b, s, head] == -INFINITY, 0, T.exp2(Logs[b, s, head] - largest[0]))
                total[0] += weight
                for j in T.Parallel(dim):
                    out[j] += Means[b, s, head, j] * weight
            for j in T.Parallel(dim):
                out[j] = T.if_then_else(total[0] == 0, 0, out[j] / total[0])
            T.copy(out, Output[b, head, :])
            Lse[b, head] = (largest[0] + T.log2(total[0])) * LN_2

    return mla_combine
