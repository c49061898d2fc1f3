"""FlashAttention in tile language: softmax(scale * Q K^T) V, the scores never leaving the block.

Q: (batch, tokens, heads, dim); K: (batch, keys, heads_kv, dim); V and O as K and Q, with dim_v elements to a head, which
may be fewer. Each key head serves heads // heads_kv heads of Q.
Products and sums in float32; weights are rounded to the operands' type before the second product. Dao et al.,
FlashAttention-2, 2023, algorithm 1.
"""

import math

import tilelang.language as T

LOG2_E = math.log2(math.e)

#: Where a row's maximum starts: finite, so that a row that sees no key has no inf - inf, and below any score.
LOWEST = -1e30


def serving(head, heads, heads_kv):
    """The key head of a head of Q. Truncated: the text of a floor division by what is known only later is far longer."""
    return T.truncdiv(head, T.truncdiv(heads, heads_kv))


def part_of(part, parts, batch, in_runs):
    """The sequence of a part of the results, and which run of its walk that is of how many, if it is cut: `in_runs`, results are
    (parts, ...), runs by sequences, float32, and another kernel joins or adds up those of a sequence."""
    if not in_runs:
        return part, None
    return T.truncmod(part, batch), (T.truncdiv(part, batch), T.max(T.truncdiv(parts, batch), 1))


def steps_of(first, end, run):
    """Those of a run of the steps from `first` up to `end`."""
    if run is None:
        return first, end
    which, runs = run
    count = T.ceildiv(T.max(end - first, 0), runs)
    return first + which * count, T.min(first + (which + 1) * count, end)


def grid(tiles, heads, heads_first):
    """Blocks that begin together have the same head, and share its keys; or the same tile of queries, and the same work."""
    return (heads, tiles) if heads_first else (tiles, heads)


def forward(
    dtype,
    dim,
    dim_v,
    mask,
    softcap,
    sinks,
    block_M,
    block_N,
    stages,
    threads,
    heads_first=False,
    in_runs=False,
    **more,
):
    """Sequences of one length: a block computes `block_M` queries of one head. `mask` and the others, `more` of them too, as in
    `attend`. `in_runs`, as in `part_of`: a block walks over one run of the keys, of O and Lse, which `join` joins."""
    batch, tokens, keys = T.dynamic("batch"), T.dynamic("tokens"), T.dynamic("keys")
    heads, heads_kv = T.dynamic("heads"), T.dynamic("heads_kv")
    rows = T.dynamic("rows")
    parts = T.dynamic("parts") if in_runs else batch
    block = attend(dtype, dim, dim_v, mask, softcap, sinks, False, block_M, block_N, stages, **more)

    @T.prim_func
    def attention(
        Q: T.Tensor((batch, tokens, heads, dim), dtype),
        K: T.Tensor((batch, keys, heads_kv, dim), dtype),
        V: T.Tensor((batch, keys, heads_kv, dim_v), dtype),
        Sinks: T.Tensor((heads if sinks else 1,), "float32"),
        O: T.Tensor((parts, tokens, heads, dim_v), "float32" if in_runs else dtype),
        Lse: T.Tensor((rows,), "float32"),
        scale: T.float32,
        cap: T.float32,
        left: T.int32,
        right: T.int32,
    ):
        tiles = T.ceildiv(tokens, block_M)
        # The last extent of a grid is at most 65535.
        blocks = (parts, heads, tiles) if in_runs else (*grid(tiles, heads, heads_first), batch)
        with T.Kernel(*blocks, threads=threads) as (x, y, z):
            part, head, tile = (x, y, z) if in_runs else (z, x, y) if heads_first else (z, y, x)
            # The blocks with the most work begin first: with a causal mask those of the last queries.
            row = (tiles - 1 - tile if mask == "causal" else tile) * block_M
            head_kv = serving(head, heads, heads_kv)
            lse = (part * heads + head) * tokens
            b, run = part_of(part, parts, batch, in_runs)
            where = (b, 0, 0, head, head_kv, row, tokens, keys, lse)
            block(Q, K, V, Sinks, O, Lse, where, (scale, cap, left, right), (part, run))

    return attention


def join(dtype, dim_v, sinks, rows, threads):
    """The runs of `rows` queries of one head joined, one after the other: each counts as much as its sum of weights."""
    runs, batch, tokens, heads = T.dynamic("runs"), T.dynamic("batch"), T.dynamic("tokens"), T.dynamic("heads")

    @T.prim_func
    def attention_join(
        Parts: T.Tensor((runs, batch, tokens, heads, dim_v), "float32"),
        Lses: T.Tensor((runs, batch, heads, tokens), "float32"),
        Sinks: T.Tensor((heads if sinks else 1,), "float32"),
        O: T.Tensor((batch, tokens, heads, dim_v), dtype),
        Lse: T.Tensor((batch, heads, tokens), "float32"),
    ):
        with T.Kernel(T.ceildiv(tokens, rows), heads, batch, threads=threads) as (bx, head, b):
            T.pdl_sync()
            out = T.alloc_fragment((rows, dim_v), "float32")
            largest = T.alloc_fragment((rows,), "float32")
            weight = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            row = bx * rows

            T.clear(out)
            T.fill(largest, T.max(Sinks[head], LOWEST) if sinks else LOWEST)
            for run in T.serial(runs):
                for i in T.Parallel(rows):
                    largest[i] = T.max(largest[i], Lses[run, b, head, row + i])
            for i in T.Parallel(rows):
                total[i] = T.exp2((Sinks[head] - largest[i]) * LOG2_E) if sinks else 0.0
            for run in T.serial(runs):  # without branches, so that the parts of several runs are on their way at once
                for i in T.Parallel(rows):
                    weight[i] = T.exp2((Lses[run, b, head, row + i] - largest[i]) * LOG2_E)
                    total[i] += weight[i]
                for i, d in T.Parallel(rows, dim_v):
                    out[i, d] += weight[i] * Parts[run, b, row + i, head, d]
            for i, d in T.Parallel(rows, dim_v):
                O[b, row + i, head, d] = T.if_then_else(total[i] == 0, 0, out[i, d] / total[i])
            for i in T.Parallel(rows):
                Lse[b, head, row + i] = T.if_then_else(
                    total[i] == 0, -T.infinity("float32"), largest[i] + T.log2(total[i]) / LOG2_E
                )

    return attention_join


def join_many(dtype, dim_v, sinks, most, together, threads):
    """`join` of up to `most` runs, of one query of one head, the parts of `together` runs at once."""
    runs, batch, tokens, heads = T.dynamic("runs"), T.dynamic("batch"), T.dynamic("tokens"), T.dynamic("heads")
    width = 1 << (dim_v - 1).bit_length()  # that threads share evenly

    @T.prim_func
    def attention_join_many(
        Parts: T.Tensor((runs, batch, tokens, heads, dim_v), "float32"),
        Lses: T.Tensor((runs, batch, heads, tokens), "float32"),
        Sinks: T.Tensor((heads if sinks else 1,), "float32"),
        O: T.Tensor((batch, tokens, heads, dim_v), dtype),
        Lse: T.Tensor((batch, heads, tokens), "float32"),
    ):
        with T.Kernel(tokens, heads, batch, threads=threads) as (row, head, b):
            T.pdl_sync()
            lses = T.alloc_fragment((most,), "float32")
            weights = T.alloc_shared((most,), "float32")
            largest = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            sums = T.alloc_fragment((together, width), "float32")
            out = T.alloc_fragment((width,), "float32")

            for r in T.Parallel(most):
                lses[r] = T.if_then_else(r < runs, Lses[T.min(r, runs - 1), b, head, row], -T.infinity("float32"))
            T.fill(largest, T.max(Sinks[head], LOWEST) if sinks else LOWEST)
            T.reduce_max(lses, largest, dim=0, clear=False)
            for r in T.Parallel(most):
                lses[r] = T.exp2((lses[r] - largest[0]) * LOG2_E)
            T.copy(lses, weights)
            T.fill(total, T.exp2((Sinks[head] - largest[0]) * LOG2_E) if sinks else 0.0)
            T.reduce_sum(lses, total, dim=0, clear=False)
            T.clear(sums)
            for group in T.serial(T.ceildiv(runs, together)):
                for r, d in T.Parallel(together, width):
                    run = group * together + r
                    sums[r, d] += T.if_then_else(run < runs, weights[run] * Parts[run, b, row, head, d], 0.0)
            T.reduce_sum(sums, out, dim=0)
            for d in T.Parallel(width):
                O[b, row, head, d] = T.if_then_else(total[0] == 0, 0, out[d] / total[0])
            for i in T.Parallel(1):
                Lse[b, head, row + i] = T.if_then_else(
                    total[0] == 0, -T.infinity("float32"), largest[0] + T.log2(total[0]) / LOG2_E
                )

    return attention_join_many


def forward_staying(dtype, dim, dim_v, mask, softcap, sinks, block_M, block_N, stages, threads, lag, blocks):
    """`forward` for a causal mask, as many keys as queries, and blocks that stay, `blocks` of them: the queries and keys of
    a tile come beside the end of the one before. `lag` as in `attend`.

    They take the tiles of `section` heads of any sequences at a time, a divisor of all of them, so that keys and values
    of these stay in the L2 cache. Tiles become longer and shorter by turns from section to section, ending with the
    shortest, and every second turn gives them to the blocks in reverse: all have as much work, without asking each other.
    `launched`: `blocks`, or as many as there are tiles if these are fewer.
    """
    batch, tokens = T.dynamic("batch"), T.dynamic("tokens")
    heads, heads_kv = T.dynamic("heads"), T.dynamic("heads_kv")
    rows = T.dynamic("rows")
    work = attend(dtype, dim, dim_v, mask, softcap, sinks, False, block_M, block_N, stages, lag)

    @T.prim_func
    def attention_staying(
        Q: T.Tensor((batch, tokens, heads, dim), dtype),
        K: T.Tensor((batch, tokens, heads_kv, dim), dtype),
        V: T.Tensor((batch, tokens, heads_kv, dim_v), dtype),
        Sinks: T.Tensor((heads if sinks else 1,), "float32"),
        O: T.Tensor((batch, tokens, heads, dim_v), dtype),
        Lse: T.Tensor((rows,), "float32"),
        scale: T.float32,
        cap: T.float32,
        left: T.int32,
        right: T.int32,
        launched: T.int32,
        section: T.int32,
    ):
        with T.Kernel(launched, threads=threads) as block:
            tiles = T.ceildiv(tokens, block_M)
            total, sections = batch * heads * tiles, T.truncdiv(batch * heads, section)
            final = T.if_then_else(T.truncdiv(total, blocks) % 2 == 0, block, blocks - 1 - block)  # its last tile
            for turn in T.serial(T.truncdiv(total - final + blocks - 1, blocks), independent=True):
                tile = turn * blocks + T.if_then_else(turn % 2 == 0, block, blocks - 1 - block)
                part = T.truncdiv(tile, section * tiles)
                rest = tile - part * section * tiles
                place = T.truncdiv(rest, section)
                number = part * section + rest - place * section
                b = T.truncdiv(number, heads)
                head = number - b * heads
                row = T.if_then_else((sections - part) % 2 == 0, place, tiles - 1 - place) * block_M
                lse = (b * heads + head) * tokens
                where = (b, 0, 0, head, serving(head, heads, heads_kv), row, tokens, tokens, lse)
                work(Q, K, V, Sinks, O, Lse, where, (scale, cap, left, right), (b, None))

    return attention_staying


def forward_packed(
    dtype, dim, dim_v, mask, softcap, sinks, block_M, block_N, stages, threads, heads_first=False, **more
):
    """Sequences of any lengths, one behind the other: sequence b holds the rows Starts[b] up to Starts[b + 1] of Q, and
    likewise of K and V. Q, K, V, O have a first extent of 1. Lse: (heads, all tokens)."""
    tokens, keys, ends = T.dynamic("tokens"), T.dynamic("keys"), T.dynamic("ends")
    heads, heads_kv = T.dynamic("heads"), T.dynamic("heads_kv")
    rows = T.dynamic("rows")
    block = attend(dtype, dim, dim_v, mask, softcap, sinks, True, block_M, block_N, stages, **more)

    @T.prim_func
    def attention_packed(
        Q: T.Tensor((1, tokens, heads, dim), dtype),
        K: T.Tensor((1, keys, heads_kv, dim), dtype),
        V: T.Tensor((1, keys, heads_kv, dim_v), dtype),
        Starts: T.Tensor((ends,), "int32"),
        Key_starts: T.Tensor((ends,), "int32"),
        Sinks: T.Tensor((heads if sinks else 1,), "float32"),
        O: T.Tensor((1, tokens, heads, dim_v), dtype),
        Lse: T.Tensor((rows,), "float32"),
        longest: T.int32,
        scale: T.float32,
        cap: T.float32,
        left: T.int32,
        right: T.int32,
    ):
        tiles = T.ceildiv(longest, block_M)
        with T.Kernel(*grid(tiles, heads, heads_first), ends - 1, threads=threads) as (x, y, b):
            head, tile = (x, y) if heads_first else (y, x)
            row = (tiles - 1 - tile if mask == "causal" else tile) * block_M
            head_kv = serving(head, heads, heads_kv)
            start, key_start = Starts[b], Key_starts[b]
            own, own_keys = Starts[b + 1] - start, Key_starts[b + 1] - key_start
            where = (0, start, key_start, head, head_kv, row, own, own_keys, head * tokens + start)
            block(Q, K, V, Sinks, O, Lse, where, (scale, cap, left, right), (0, None))

    return attention_packed


def attend(
    dtype,
    dim,
    dim_v,
    mask,
    softcap,
    sinks,
    packed,
    block_M,
    block_N,
    stages,
    lag=None,
    pad=0,
    steady=False,
    in_memory=False,
):
    """The body of a block: `block_M` queries of one head, a walk over the keys in tiles of `block_N`.

    `mask`: "full"; "causal", the last query sees every key, the one before it all but the last, and so on; "window",
    query i sees the keys i + past - left .. i + past + right, past = keys - tokens. `softcap`: scores are
    cap * tanh(score / cap). `sinks`: each head has one more score that takes weight and has no value. `packed`: other
    sequences lie behind this one's last row. `lag`, a number: the mask is causal and there are as many keys as queries;
    the tiles come from the diagonal down, so that the mask stands in the first steps alone, and a row's maximum follows
    when it is `lag` powers of 2 behind, so that hardly a step scales the output (weights up to 2^8 are as exact as those
    up to 1); 0: at once. `block_N` then divides `block_M`. `pad` elements lie between the rows of the tile of values.
    `steady`: rows whose maximum stays are left alone, where a row is a loop. `in_memory`: weights go to the second product
    through shared memory. `result`: the sequence of O, and which run of the walk that is of how many, or None.
    """
    square = lag is not None

    @T.macro
    def block(Q, K, V, Sinks, O, Lse, where, numbers, result):
        b, q0, k0, head, head_kv, row, tokens, keys, lse = where
        to, run = result
        scale, cap, left, right = numbers
        Q_tile = T.alloc_shared((block_M, dim), dtype)
        K_tile = T.alloc_shared((block_N, dim), dtype)
        V_rows = T.alloc_shared((block_N, dim_v + pad), dtype)
        V_tile = V_rows[0:block_N, 0:dim_v] if pad else V_rows
        scores = T.alloc_fragment((block_M, block_N), "float32")
        weights = (T.alloc_shared if in_memory else T.alloc_fragment)((block_M, block_N), dtype)
        out = T.alloc_fragment((block_M, dim_v), "float32")
        largest = T.alloc_fragment((block_M,), "float32")
        before = T.alloc_fragment((block_M,), "float32")
        rescale = T.alloc_fragment((block_M,), "float32")
        tile_sum = T.alloc_fragment((block_M,), "float32")
        total = T.alloc_fragment((block_M,), "float32")

        past = keys - tokens
        exponent = LOG2_E if softcap else scale * LOG2_E  # of 2, for a score of 1

        T.copy(Q[b, q0 + row : q0 + row + block_M, head, :], Q_tile)
        T.clear(out)
        if sinks:
            T.fill(largest, T.max(Sinks[head] / (1.0 if softcap else scale), LOWEST))
            T.fill(total, T.if_then_else(T.isnan(Sinks[head]), Sinks[head], 1.0))
        else:
            T.fill(largest, LOWEST)
            T.clear(total)

        if mask == "full":
            first, end, unmasked = 0, keys, keys
        elif square:
            first, end, unmasked = 0, row + block_M, row
        elif mask == "causal":
            first, end, unmasked = 0, T.max(T.min(row + block_M + past, keys), 0), row + past
        else:
            first = T.max(row + past - left, 0) // block_N
            end = T.max(T.min(row + block_M + past + right, keys), 0)
            unmasked = T.min(row + past + right, keys)
        if packed:
            end = T.if_then_else(row < tokens, end, 0)  # blocks past a short sequence's end have nothing to do
        tiles = T.ceildiv(end, block_N)
        first, tiles = steps_of(first, tiles, run)
        # From 0, so that a stage's turn is known where memory says which key is the first.
        for step in T.Pipelined(
            tiles if mask != "window" and run is None else T.max(tiles - first, 0), num_stages=stages
        ):
            k = tiles - 1 - step if square else first + step
            T.copy(K[b, k0 + k * block_N : k0 + (k + 1) * block_N, head_kv, :], K_tile)
            T.gemm(Q_tile, K_tile, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
            if softcap:
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = cap - 2 * cap / (1 + T.exp2(scores[i, j] * (2 * LOG2_E * scale / cap)))
            crossed = step < block_M // block_N if square else (k + 1) * block_N > unmasked
            if mask == "window":
                crossed = crossed or k * block_N < row + block_M - 1 + past - left
            if crossed:  # a tile with keys that some row does not see
                for i, j in T.Parallel(block_M, block_N):
                    key = k * block_N + j
                    if mask == "full":
                        seen = key < keys
                    elif mask == "causal":
                        seen = key <= row + i + past
                    else:
                        seen = key < keys and key <= row + i + past + right and key >= row + i + past - left
                    scores[i, j] = T.if_then_else(seen, scores[i, j], -T.infinity("float32"))

            # Online softmax: when a row's maximum grows, what was summed so far is scaled down to it.
            T.copy(largest, before)
            T.reduce_max(scores, largest, dim=1, clear=False)
            for i in T.Parallel(block_M):
                if lag:
                    largest[i] = T.if_then_else((largest[i] - before[i]) * exponent > lag, largest[i], before[i])
                rescale[i] = T.exp2((before[i] - largest[i]) * exponent)
            for i, j in T.Parallel(block_M, block_N):
                scores[i, j] = T.exp2(scores[i, j] * exponent - largest[i] * exponent)
            T.reduce_sum(scores, tile_sum, dim=1)
            for i in T.Parallel(block_M):
                total[i] = total[i] * rescale[i] + tile_sum[i]
            T.copy(scores, weights)
            for i, j in T.Parallel(block_M, dim_v):
                if not (lag or steady) or rescale[i] != 1:
                    out[i, j] *= rescale[i]
            T.copy(V[b, k0 + k * block_N : k0 + (k + 1) * block_N, head_kv, :], V_tile)
            T.gemm(weights, V_tile, out, policy=T.GemmWarpPolicy.FullRow)

        for i, j in T.Parallel(block_M, dim_v):
            out[i, j] = out[i, j] / total[i] if square else T.if_then_else(total[i] == 0, 0, out[i, j] / total[i])
        if packed:
            for i, j in T.Parallel(block_M, dim_v):
                if row + i < tokens:
                    O[b, q0 + row + i, head, j] = out[i, j]
        else:
            T.copy(out, O[to, row : row + block_M, head, :])
        for i in T.Parallel(block_M):
            if row + i < tokens:
                Lse[lse + row + i] = T.if_then_else(
                    total[i] == 0, -T.infinity("float32"), (largest[i] * exponent + T.log2(total[i])) / LOG2_E
                )

    return block
