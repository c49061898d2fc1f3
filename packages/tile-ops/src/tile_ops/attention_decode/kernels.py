"""Attention of one new token over keys and values, in tile language.

Q, O: (batch, heads, dim); K, V: (pages, page_size, heads_kv, dim); Table: (batch, pages of a sequence), the pages that
hold a sequence's keys in order; Lengths: (batch,), its number of keys. The keys of a sequence are cut into `splits` runs
of tiles; `split` and `split_rows` compute a run's softmax and product, `combine` joins the runs. Dao et al., Flash-Decoding,
2023.
"""

import math

import tilelang.language as T

LOG2_E = math.log2(math.e)

#: Where a row's maximum starts: finite, so that a run without keys has no inf - inf, and below any score.
LOWEST = -1e30


def in_pages(Table, b, page_size):
    """Which page has a key of sequence b, and where."""
    return lambda key: (Table[b, T.min(key // page_size, Table.shape[1] - 1)], key % page_size)


def split(dtype, dim, page_size, softcap, block_H, block_N, stages, threads, ahead=False):
    """A block computes `block_H` heads of Q that share a head of K over one run of a sequence's keys. `ahead`: what a tile of V
    and the next one of K are copied from is fetched while the products before are made.

    `group` heads of Q share a head of K, in `blocks` blocks. Parts: (batch, splits, heads, dim), each run's result; Lse:
    (batch, splits, heads), base 2, LOWEST without keys.
    """
    batch, heads, heads_kv = T.dynamic("batch"), T.dynamic("heads"), T.dynamic("heads_kv")
    pages, columns, splits = T.dynamic("pages"), T.dynamic("columns"), T.dynamic("splits")

    @T.prim_func
    def decode_split(
        Q: T.Tensor((batch, heads, dim), dtype),
        K: T.Tensor((pages, page_size, heads_kv, dim), dtype),
        V: T.Tensor((pages, page_size, heads_kv, dim), dtype),
        Table: T.Tensor((batch, columns), "int32"),
        Lengths: T.Tensor((batch,), "int32"),
        Parts: T.Tensor((batch, splits, heads, dim), "float32"),
        Lse: T.Tensor((batch, splits, heads), "float32"),
        scale: T.float32,
        cap: T.float32,
        left: T.int32,
        group: T.int32,
        blocks: T.int32,
    ):
        with T.Kernel(splits, heads_kv * blocks, batch, threads=threads) as (s, by, b):
            length = T.max(T.min(Lengths[b], columns * page_size), 0)  # the table holds no more

            tiles = (block_H, block_N, min(page_size, block_N), stages, ahead)
            numbers = (scale, cap if softcap else None, left, group, blocks)
            attend_run(Q, K, V, Parts, Lse, in_pages(Table, b, page_size), length, s, by, b, tiles, numbers)

    return decode_split


def split_rows(dtype, dim, softcap, block_H, block_N, stages, threads):
    """`split` for sequences of one length that lie where they are: K, V: (batch, keys, heads_kv, dim)."""
    batch, keys, heads, heads_kv, splits = T.dynamic("batch, keys, heads, heads_kv, splits")

    @T.prim_func
    def decode_split_rows(
        Q: T.Tensor((batch, heads, dim), dtype),
        K: T.Tensor((batch, keys, heads_kv, dim), dtype),
        V: T.Tensor((batch, keys, heads_kv, dim), dtype),
        Parts: T.Tensor((batch, splits, heads, dim), "float32"),
        Lse: T.Tensor((batch, splits, heads), "float32"),
        scale: T.float32,
        cap: T.float32,
        left: T.int32,
        group: T.int32,
        blocks: T.int32,
    ):
        with T.Kernel(splits, heads_kv * blocks, batch, threads=threads) as (s, by, b):
            tiles = (block_H, block_N, block_N, stages, False)
            numbers = (scale, cap if softcap else None, left, group, blocks)
            attend_run(Q, K, V, Parts, Lse, lambda key: (b, key), keys, s, by, b, tiles, numbers)

    return decode_split_rows


@T.macro
def attend_run(Q, K, V, Parts, Lse, place, length, s, by, b, tiles, numbers):
    """Run `s` of the `length` keys of sequence b. `place(key)`: the page of a key, and where it lies there; of a tile so many
    neighbours lie in one page. `cap` None: scores have none."""
    block_H, block_N, rows, stages, ahead = tiles
    scale, cap, left, group, blocks = numbers
    dtype, dim, splits = K.dtype, K.shape[3], Parts.shape[1]
    pieces = tuple(range(block_N // rows))
    Q_tile = T.alloc_shared((block_H, dim), dtype)
    K_tile = T.alloc_shared((block_N, dim), dtype)
    V_tile = T.alloc_shared((block_N, dim), dtype)
    weights = T.alloc_shared((block_H, block_N), dtype)
    scores = T.alloc_fragment((block_H, block_N), "float32")
    out = T.alloc_fragment((block_H, dim), "float32")
    largest = T.alloc_fragment((block_H,), "float32")
    before = T.alloc_fragment((block_H,), "float32")
    rescale = T.alloc_fragment((block_H,), "float32")
    tile_sum = T.alloc_fragment((block_H,), "float32")
    total = T.alloc_fragment((block_H,), "float32")

    # Truncated: the text of a floor division by what is known only later is far longer.
    head_kv = T.truncdiv(by, blocks)
    within = T.truncmod(by, blocks) * block_H  # heads of the group that other blocks compute
    head = head_kv * group + within
    exponent = scale * LOG2_E if cap is None else LOG2_E
    lowest = T.max(length - 1 - left, 0)  # the first key that the window reaches
    first_tile = lowest // block_N
    run = T.ceildiv(T.ceildiv(length, block_N) - first_tile, splits)
    first = first_tile + s * run
    end = T.min(first + run, T.ceildiv(length, block_N))

    @T.macro
    def fetch(X, tile):
        for p in pieces:
            page, at = place(tile * block_N + p * rows)
            T.prefetch(X[page, at : at + rows, head_kv, :])

    for i, d in T.Parallel(block_H, dim):
        Q_tile[i, d] = T.if_then_else(within + i < group, Q[b, head + i, d], 0)
    T.clear(out)
    T.clear(total)
    T.fill(largest, LOWEST)
    for k in T.Pipelined(first, T.max(end, first), num_stages=stages):
        for p in pieces:
            page, at = place(k * block_N + p * rows)
            T.copy(K[page, at : at + rows, head_kv, :], K_tile[p * rows : (p + 1) * rows, :])
        if ahead:
            fetch(V, k)
        T.gemm(Q_tile, K_tile, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullCol, clear_accum=True)
        if cap is not None:
            for i, j in T.Parallel(block_H, block_N):
                scores[i, j] = cap - 2 * cap / (1 + T.exp2(scores[i, j] * (2 * LOG2_E * scale / cap)))
        for i, j in T.Parallel(block_H, block_N):
            key = k * block_N + j
            seen = key < length and key >= lowest
            scores[i, j] = T.if_then_else(seen, scores[i, j], -T.infinity("float32"))
        T.copy(largest, before)
        T.reduce_max(scores, largest, dim=1, clear=False)
        for i in T.Parallel(block_H):
            rescale[i] = T.exp2((before[i] - largest[i]) * exponent)
        for i, j in T.Parallel(block_H, block_N):
            scores[i, j] = T.exp2(scores[i, j] * exponent - largest[i] * exponent)
        T.reduce_sum(scores, tile_sum, dim=1)
        for i in T.Parallel(block_H):
            total[i] = total[i] * rescale[i] + tile_sum[i]
        T.copy(scores, weights)
        for i, d in T.Parallel(block_H, dim):
            out[i, d] *= rescale[i]
        for p in pieces:
            page, at = place(k * block_N + p * rows)
            T.copy(V[page, at : at + rows, head_kv, :], V_tile[p * rows : (p + 1) * rows, :])
        if (k + 1) * block_N > length:  # what a page holds past the end may be anything, and 0 * NaN is NaN
            for j, d in T.Parallel(block_N, dim):
                V_tile[j, d] = T.if_then_else(k * block_N + j < length, V_tile[j, d], 0)
        if ahead:
            fetch(K, k + 1)
        T.gemm(weights, V_tile, out, policy=T.GemmWarpPolicy.FullCol)

    for i, d in T.Parallel(block_H, dim):
        if within + i < group:
            Parts[b, s, head + i, d] = T.if_then_else(total[i] == 0, 0, out[i, d] / total[i])
    for i in T.Parallel(block_H):
        if within + i < group:
            Lse[b, s, head + i] = T.if_then_else(total[i] == 0, LOWEST, largest[i] * exponent + T.log2(total[i]))


def combine(dtype, dim, sinks, threads):
    """The runs of a row joined: each counts as much as its sum of weights. Result_lse: (batch, heads), base e."""
    batch, heads, splits = T.dynamic("batch"), T.dynamic("heads"), T.dynamic("splits")

    @T.prim_func
    def decode_combine(
        Parts: T.Tensor((batch, splits, heads, dim), "float32"),
        Lse: T.Tensor((batch, splits, heads), "float32"),
        Sinks: T.Tensor((heads if sinks else 1,), "float32"),
        O: T.Tensor((batch, heads, dim), dtype),
        Result_lse: T.Tensor((batch, heads), "float32"),
    ):
        with T.Kernel(heads, batch, threads=threads) as (head, b):
            T.pdl_sync()
            out = T.alloc_fragment((dim,), "float32")
            largest = T.alloc_var("float32", init=LOWEST)
            total = T.alloc_var("float32", init=0)
            T.clear(out)
            if sinks:
                largest = T.max(Sinks[head] * LOG2_E, LOWEST)
            for s in T.serial(splits):
                largest = T.max(largest, Lse[b, s, head])
            if sinks:
                total = T.exp2(Sinks[head] * LOG2_E - largest)
            for s in T.serial(splits):  # without branches, so that the parts of several runs are on their way at once
                weight = T.if_then_else(Lse[b, s, head] == LOWEST, 0.0, T.exp2(Lse[b, s, head] - largest))  # NaN is not
                total += weight
                for d in T.Parallel(dim):
                    out[d] += weight * Parts[b, s, head, d]
            for d in T.Parallel(dim):
                O[b, head, d] = T.if_then_else(total == 0, 0, out[d] / total)
            for i in T.Parallel(1):
                Result_lse[b, head + i] = T.if_then_else(
                    total == 0, -T.infinity("float32"), (largest + T.log2(total)) / LOG2_E
                )

    return decode_combine
