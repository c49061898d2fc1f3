"""Gradients of attention in tile language: of q, k, v and of the sinks. No atomics, so that sums have one order.

With P = exp(S - lse) and delta = rowsum(O dO) - dlse:  dV = P^T dO,  dS = P (dO V^T - delta),  dQ = scale dS K,
dK = scale dS^T Q. Scores are computed again, once for dQ and once for dK and dV. Dao, FlashAttention-2, 2023, algorithm 2.

Tensors as in attention/kernels.py; Base and Delta: (batch, heads, padded) float32, padded a multiple of ROWS. Each kernel is
there for sequences of one length, and `packed` for those of any lengths that lie one behind the other: batch is 1 then.
"""

import math

import tilelang.language as T
from tile_ops.attention.kernels import part_of, serving, steps_of

LOG2_E = math.log2(math.e)

#: Rows of Base and Delta come in so many; tiles of queries divide it.
ROWS = 128
#: Rows of a block of `prepare`, of which ROWS is a multiple: few, so that many loads are under way.
PREPARED = 32


def prepare(dtype, dim):
    """Base = lse / ln 2, so that P = exp2(S / ln 2 - Base), and delta, of sequences of one length."""
    batch, tokens, heads, padded = T.dynamic("batch"), T.dynamic("tokens"), T.dynamic("heads"), T.dynamic("padded")
    rows = T.dynamic("rows")
    block = of_rows(dim)

    @T.prim_func
    def prepare(
        O: T.Tensor((batch, tokens, heads, dim), dtype),
        dO: T.Tensor((batch, tokens, heads, dim), dtype),
        Lse: T.Tensor((rows,), "float32"),
        dLse: T.Tensor((rows,), "float32"),
        Base: T.Tensor((batch, heads, padded), "float32"),
        Delta: T.Tensor((batch, heads, padded), "float32"),
    ):
        with T.Kernel(T.ceildiv(padded, PREPARED), heads, batch, threads=128) as (bx, head, b):
            where = (b, 0, head, bx * PREPARED, tokens, 0, padded, (b * heads + head) * tokens)
            block(O, dO, Lse, dLse, Base, Delta, where)

    return prepare


def prepare_packed(dtype, dim):
    """The same of sequences of any lengths, one behind the other."""
    tokens, heads, padded, ends = T.dynamic("tokens"), T.dynamic("heads"), T.dynamic("padded"), T.dynamic("ends")
    rows = T.dynamic("rows")
    block = of_rows(dim)

    @T.prim_func
    def prepare_packed(
        O: T.Tensor((1, tokens, heads, dim), dtype),
        dO: T.Tensor((1, tokens, heads, dim), dtype),
        Starts: T.Tensor((ends,), "int32"),
        Lse: T.Tensor((rows,), "float32"),
        dLse: T.Tensor((rows,), "float32"),
        Base: T.Tensor((1, heads, padded), "float32"),
        Delta: T.Tensor((1, heads, padded), "float32"),
        longest: T.int32,
    ):
        blocks = (T.ceildiv(longest, ROWS) + 1) * (ROWS // PREPARED)
        with T.Kernel(blocks, heads, ends - 1, threads=128) as (bx, head, b):
            start, end = Starts[b], Starts[b + 1]
            padding = place(start, b)
            room = place(end, b + 1) - padding
            where = (0, start, head, bx * PREPARED, end - start, padding, room, head * tokens + start)
            block(O, dO, Lse, dLse, Base, Delta, where)

    return prepare_packed


def place(start, b):
    """Where the rows of sequence b, which begins at `start`, lie in Base and Delta: each sequence has room for its rows, up
    to a multiple of ROWS, and perhaps ROWS more."""
    return (T.truncdiv(start, ROWS) + b) * ROWS


def of_rows(dim):
    """The body of a block of `prepare`: rows without weight, and those past the sequence's end, get a Base that makes P 0.

    A row is read in pieces of a power of two, which whole threads share evenly (192 by 64 on an H200: 0.53 ms as one piece).
    """
    width = dim & -dim

    @T.macro
    def block(O, dO, Lse, dLse, Base, Delta, where):
        b, q0, head, row, tokens, padding, room, lse_row = where
        products = T.alloc_fragment((PREPARED, width), "float32")
        delta = T.alloc_fragment((PREPARED,), "float32")
        for i, d in T.Parallel(PREPARED, width):
            products[i, d] = T.cast(O[b, q0 + row + i, head, d], "float32") * dO[b, q0 + row + i, head, d]
        for first in [*range(width, dim, width)]:
            for i, d in T.Parallel(PREPARED, width):
                x = T.cast(O[b, q0 + row + i, head, first + d], "float32")
                products[i, d] += x * dO[b, q0 + row + i, head, first + d]
        T.reduce_sum(products, delta, dim=1)
        for i in T.Parallel(PREPARED):
            if row + i < tokens:
                lse = Lse[lse_row + row + i]
                Base[b, head, padding + row + i] = T.if_then_else(lse > -1e30, lse * LOG2_E, 1e30)
                Delta[b, head, padding + row + i] = delta[i] - dLse[lse_row + row + i]
            elif row < room:
                Base[b, head, padding + row + i] = 1e30
                Delta[b, head, padding + row + i] = 0

    return block


@T.macro
def keep(tile, X, where, rows, packed):
    """A tile as rows of X from `where` on: (sequence, its first row if it is `packed`, row in it, head). Of packed sequences
    other rows lie behind the last of `rows`."""
    b, start, row, head = where
    if packed:
        for i, d in T.Parallel(*tile.shape):
            if row + i < rows:
                X[b, start + row + i, head, d] = tile[i, d]
    else:
        T.copy(tile, X[b, row : row + tile.shape[0], head, :])


def add(dtype, columns, rows, threads):
    """X = the sum over the runs of Parts, (runs, n), `rows` of them at a time."""
    runs, n = T.dynamic("runs"), T.dynamic("n")

    @T.prim_func
    def attention_add(Parts: T.Tensor((runs, n), "float32"), X: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, columns), threads=threads) as bx:
            T.pdl_sync()
            sums = T.alloc_fragment((rows, columns), "float32")
            total = T.alloc_fragment((columns,), "float32")
            T.clear(sums)
            for k in T.serial(T.ceildiv(runs, rows)):
                for i, j in T.Parallel(rows, columns):
                    sums[i, j] += Parts[k * rows + i, bx * columns + j]  # those past the last run read 0
            T.reduce_sum(sums, total, dim=0)
            T.copy(total, X[bx * columns])

    return attention_add


def queries(dtype, dim, mask, softcap, block_M, block_N, stages, threads, in_memory=False, in_runs=False):
    """dQ of sequences of one length: a block computes `block_M` queries of one head; `in_runs` as in `part_of`."""
    batch, tokens, keys = T.dynamic("batch"), T.dynamic("tokens"), T.dynamic("keys")
    heads, heads_kv, padded = T.dynamic("heads"), T.dynamic("heads_kv"), T.dynamic("padded")
    parts = T.dynamic("parts") if in_runs else batch
    block = of_queries(dtype, dim, mask, softcap, False, block_M, block_N, stages, in_memory)

    @T.prim_func
    def attention_dq(
        Q: T.Tensor((batch, tokens, heads, dim), dtype),
        K: T.Tensor((batch, keys, heads_kv, dim), dtype),
        V: T.Tensor((batch, keys, heads_kv, dim), dtype),
        dO: T.Tensor((batch, tokens, heads, dim), dtype),
        Base: T.Tensor((batch, heads, padded), "float32"),
        Delta: T.Tensor((batch, heads, padded), "float32"),
        dQ: T.Tensor((parts, tokens, heads, dim), "float32" if in_runs else dtype),
        scale: T.float32,
        cap: T.float32,
        left: T.int32,
        right: T.int32,
    ):
        with T.Kernel(T.ceildiv(tokens, block_M), heads, parts, threads=threads) as (bx, head, part):
            T.pdl_sync()
            row = (T.ceildiv(tokens, block_M) - 1 - bx if mask == "causal" else bx) * block_M
            b, run = part_of(part, parts, batch, in_runs)
            where = (b, 0, 0, head, serving(head, heads, heads_kv), row, tokens, keys, 0)
            block(Q, K, V, dO, Base, Delta, dQ, where, (scale, cap, left, right), (part, run))

    return attention_dq


def queries_packed(dtype, dim, mask, softcap, block_M, block_N, stages, threads, in_memory=False):
    """dQ of sequences of any lengths: sequence b holds the rows Starts[b] up to Starts[b + 1] of Q, and likewise of K."""
    tokens, keys, ends = T.dynamic("tokens"), T.dynamic("keys"), T.dynamic("ends")
    heads, heads_kv, padded = T.dynamic("heads"), T.dynamic("heads_kv"), T.dynamic("padded")
    block = of_queries(dtype, dim, mask, softcap, True, block_M, block_N, stages, in_memory)

    @T.prim_func
    def attention_dq_packed(
        Q: T.Tensor((1, tokens, heads, dim), dtype),
        K: T.Tensor((1, keys, heads_kv, dim), dtype),
        V: T.Tensor((1, keys, heads_kv, dim), dtype),
        dO: T.Tensor((1, tokens, heads, dim), dtype),
        Starts: T.Tensor((ends,), "int32"),
        Key_starts: T.Tensor((ends,), "int32"),
        Base: T.Tensor((1, heads, padded), "float32"),
        Delta: T.Tensor((1, heads, padded), "float32"),
        dQ: T.Tensor((1, tokens, heads, dim), dtype),
        longest: T.int32,
        scale: T.float32,
        cap: T.float32,
        left: T.int32,
        right: T.int32,
    ):
        with T.Kernel(T.ceildiv(longest, block_M), heads, ends - 1, threads=threads) as (bx, head, b):
            T.pdl_sync()
            row = (T.ceildiv(longest, block_M) - 1 - bx if mask == "causal" else bx) * block_M
            start, key_start = Starts[b], Key_starts[b]
            own, own_keys = Starts[b + 1] - start, Key_starts[b + 1] - key_start
            head_kv = serving(head, heads, heads_kv)
            where = (0, start, key_start, head, head_kv, row, own, own_keys, place(start, b))
            block(Q, K, V, dO, Base, Delta, dQ, where, (scale, cap, left, right), (0, None))

    return attention_dq_packed


def of_queries(dtype, dim, mask, softcap, packed, block_M, block_N, stages, in_memory=False):
    """The body of a block of dQ: `block_M` queries of one head, a walk over the keys in tiles of `block_N`. `packed`: other
    sequences lie behind this one's last row. `in_memory`: gradients of scores go to the second product through shared memory.
    `result`: the sequence of dQ, and the run of the walk, as of `part_of`."""

    @T.macro
    def block(Q, K, V, dO, Base, Delta, dQ, where, numbers, result):
        b, q0, k0, head, head_kv, row, tokens, keys, padding = where
        part, run = result
        scale, cap, left, right = numbers
        Q_tile = T.alloc_shared((block_M, dim), dtype)
        dO_tile = T.alloc_shared((block_M, dim), dtype)
        K_tile = T.alloc_shared((block_N, dim), dtype)
        V_tile = T.alloc_shared((block_N, dim), dtype)
        scores = T.alloc_fragment((block_M, block_N), "float32")
        slopes = T.alloc_fragment((block_M, block_N), "float32")
        rounded = (T.alloc_shared if in_memory else T.alloc_fragment)((block_M, block_N), dtype)
        gradient = T.alloc_fragment((block_M, dim), "float32")
        base = T.alloc_fragment((block_M,), "float32")
        delta = T.alloc_fragment((block_M,), "float32")

        past = keys - tokens
        exponent = LOG2_E if softcap else scale * LOG2_E

        T.copy(Q[b, q0 + row : q0 + row + block_M, head, :], Q_tile)
        T.copy(dO[b, q0 + row : q0 + row + block_M, head, :], dO_tile)
        T.copy(Base[b, head, padding + row : padding + row + block_M], base)
        T.copy(Delta[b, head, padding + row : padding + row + block_M], delta)
        T.clear(gradient)

        if mask == "full":
            first, end, unmasked = 0, keys, keys
        elif mask == "causal":
            first, end, unmasked = 0, T.max(T.min(row + block_M + past, keys), 0), T.min(row + past, keys)
        else:
            first = T.max(row + past - left, 0) // block_N
            end = T.max(T.min(row + block_M + past + right, keys), 0)
            unmasked = T.min(row + past + right, keys)
        if packed:
            end = T.if_then_else(row < tokens, end, 0)  # blocks past a short sequence's end have nothing to do
        begin, tiles = steps_of(first, T.ceildiv(end, block_N), run)
        for k in T.Pipelined(begin, tiles, num_stages=stages):
            T.copy(K[b, k0 + k * block_N : k0 + (k + 1) * block_N, head_kv, :], K_tile)
            T.gemm(Q_tile, K_tile, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
            T.copy(V[b, k0 + k * block_N : k0 + (k + 1) * block_N, head_kv, :], V_tile)
            T.gemm(dO_tile, V_tile, slopes, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
            if softcap:
                for i, j in T.Parallel(block_M, block_N):
                    capped = 1 - 2 / (1 + T.exp2(scores[i, j] * (2 * LOG2_E * scale / cap)))
                    scores[i, j] = cap * capped
                    slopes[i, j] = (slopes[i, j] - delta[i]) * (1 - capped * capped)
            else:
                for i, j in T.Parallel(block_M, block_N):
                    slopes[i, j] -= delta[i]
            crossed = (k + 1) * block_N > unmasked
            if mask == "window":
                crossed = crossed or k * block_N < row + block_M - 1 + past - left
            if crossed:  # a tile with keys that some row does not see
                for i, j in T.Parallel(block_M, block_N):
                    key = k * block_N + j
                    seen = key < keys
                    if mask != "full":
                        seen = seen and key <= row + i + past + (0 if mask == "causal" else right)
                    if mask == "window":
                        seen = seen and key >= row + i + past - left
                    scores[i, j] = T.if_then_else(seen, scores[i, j], -T.infinity("float32"))
            for i, j in T.Parallel(block_M, block_N):
                scores[i, j] = T.exp2(scores[i, j] * exponent - base[i])
            for i, j in T.Parallel(block_M, block_N):
                scores[i, j] *= slopes[i, j]
            T.copy(scores, rounded)
            T.gemm(rounded, K_tile, gradient, policy=T.GemmWarpPolicy.FullRow)

        for i, d in T.Parallel(block_M, dim):
            gradient[i, d] *= scale
        keep(gradient, dQ, (part, q0, row, head), tokens, packed)

    return block


def keys_and_values(
    dtype, dim, mask, softcap, block_M, block_N, stages, threads, only=None, late=False, in_memory=False, in_runs=False
):
    """dK and dV of sequences of one length: a block computes `block_N` keys of one head. `only` "keys" or "values": one of the
    two, where registers do not hold the sums of both. `late` as in `of_keys_and_values`, `in_runs` as in `part_of`."""
    batch, tokens, keys = T.dynamic("batch"), T.dynamic("tokens"), T.dynamic("keys")
    heads, heads_kv, padded = T.dynamic("heads"), T.dynamic("heads_kv"), T.dynamic("padded")
    parts = T.dynamic("parts") if in_runs else batch
    kept = "float32" if in_runs else dtype
    block = of_keys_and_values(dtype, dim, mask, softcap, False, block_M, block_N, stages, late, in_memory)

    @T.prim_func
    def attention_dkdv(
        Q: T.Tensor((batch, tokens, heads, dim), dtype),
        K: T.Tensor((batch, keys, heads_kv, dim), dtype),
        V: T.Tensor((batch, keys, heads_kv, dim), dtype),
        dO: T.Tensor((batch, tokens, heads, dim), dtype),
        Base: T.Tensor((batch, heads, padded), "float32"),
        Delta: T.Tensor((batch, heads, padded), "float32"),
        dK: T.Tensor((parts, keys, heads_kv, dim), kept),
        dV: T.Tensor((parts, keys, heads_kv, dim), kept),
        scale: T.float32,
        cap: T.float32,
        left: T.int32,
        right: T.int32,
    ):
        with T.Kernel(T.ceildiv(keys, block_N), heads_kv, parts, threads=threads) as (bx, head_kv, part):
            T.pdl_sync()
            b, run = part_of(part, parts, batch, in_runs)
            where = (b, 0, 0, head_kv, T.truncdiv(heads, heads_kv), bx * block_N, tokens, keys, 0)
            results = (None, None if only == "values" else dK, None if only == "keys" else dV)
            block(Q, K, V, dO, Base, Delta, results, where, (scale, cap, left, right), (part, run))

    return attention_dkdv


def together(dtype, dim, mask, softcap, block_M, block_N, stages, threads):
    """dQ, dK and dV of sequences of one length, float32: a block computes all of one head of keys, tile by tile. So scores are
    computed once; for CPUs, whose cores find work enough in the heads."""
    batch, tokens, keys = T.dynamic("batch"), T.dynamic("tokens"), T.dynamic("keys")
    heads, heads_kv, padded = T.dynamic("heads"), T.dynamic("heads_kv"), T.dynamic("padded")
    block = of_keys_and_values(dtype, dim, mask, softcap, False, block_M, block_N, stages)

    @T.prim_func
    def attention_gradients(
        Q: T.Tensor((batch, tokens, heads, dim), dtype),
        K: T.Tensor((batch, keys, heads_kv, dim), dtype),
        V: T.Tensor((batch, keys, heads_kv, dim), dtype),
        dO: T.Tensor((batch, tokens, heads, dim), dtype),
        Base: T.Tensor((batch, heads, padded), "float32"),
        Delta: T.Tensor((batch, heads, padded), "float32"),
        dQ: T.Tensor((batch, tokens, heads, dim), "float32"),
        dK: T.Tensor((batch, keys, heads_kv, dim), dtype),
        dV: T.Tensor((batch, keys, heads_kv, dim), dtype),
        scale: T.float32,
        cap: T.float32,
        left: T.int32,
        right: T.int32,
    ):
        with T.Kernel(heads_kv, batch, threads=threads) as (head_kv, b):
            group = T.truncdiv(heads, heads_kv)
            tiles = T.ceildiv(tokens, block_M)
            for step in T.serial(tiles * group):
                for i, d in T.Parallel(block_M, dim):
                    dQ[b, T.truncmod(step, tiles) * block_M + i, head_kv * group + T.truncdiv(step, tiles), d] = 0
            for tile in T.serial(T.ceildiv(keys, block_N)):
                where = (b, 0, 0, head_kv, group, tile * block_N, tokens, keys, 0)
                block(Q, K, V, dO, Base, Delta, (dQ, dK, dV), where, (scale, cap, left, right), (b, None))

    return attention_gradients


def keys_and_values_packed(
    dtype, dim, mask, softcap, block_M, block_N, stages, threads, only=None, late=False, in_memory=False
):
    """The same of sequences of any lengths, one behind the other."""
    tokens, keys, ends = T.dynamic("tokens"), T.dynamic("keys"), T.dynamic("ends")
    heads, heads_kv, padded = T.dynamic("heads"), T.dynamic("heads_kv"), T.dynamic("padded")
    block = of_keys_and_values(dtype, dim, mask, softcap, True, block_M, block_N, stages, late, in_memory)

    @T.prim_func
    def attention_dkdv_packed(
        Q: T.Tensor((1, tokens, heads, dim), dtype),
        K: T.Tensor((1, keys, heads_kv, dim), dtype),
        V: T.Tensor((1, keys, heads_kv, dim), dtype),
        dO: T.Tensor((1, tokens, heads, dim), dtype),
        Starts: T.Tensor((ends,), "int32"),
        Key_starts: T.Tensor((ends,), "int32"),
        Base: T.Tensor((1, heads, padded), "float32"),
        Delta: T.Tensor((1, heads, padded), "float32"),
        dK: T.Tensor((1, keys, heads_kv, dim), dtype),
        dV: T.Tensor((1, keys, heads_kv, dim), dtype),
        longest: T.int32,
        scale: T.float32,
        cap: T.float32,
        left: T.int32,
        right: T.int32,
    ):
        with T.Kernel(T.ceildiv(longest, block_N), heads_kv, ends - 1, threads=threads) as (bx, head_kv, b):
            T.pdl_sync()
            start, key_start = Starts[b], Key_starts[b]
            own, own_keys = Starts[b + 1] - start, Key_starts[b + 1] - key_start
            group = T.truncdiv(heads, heads_kv)
            where = (0, start, key_start, head_kv, group, bx * block_N, own, own_keys, place(start, b))
            results = (None, None if only == "values" else dK, None if only == "keys" else dV)
            block(Q, K, V, dO, Base, Delta, results, where, (scale, cap, left, right), (0, None))

    return attention_dkdv_packed


def of_keys_and_values(dtype, dim, mask, softcap, packed, block_M, block_N, stages, late=False, in_memory=False):
    """The body of a block of dK and dV: `block_N` keys, a walk over the queries of their heads in tiles of `block_M`. What
    these keys add to dQ, float32, is added there. Of the three `results` those that are None are left out. `late`: without a cap,
    dO V^T is computed after dV has been added to, so that a thread never holds both it and what that takes. `in_memory`: weights
    go to the second products through shared memory. `part`: as `result` in `of_queries`."""
    late = late and not softcap
    between = T.alloc_shared if in_memory else T.alloc_fragment

    @T.macro
    def block(Q, K, V, dO, Base, Delta, results, where, numbers, part):
        dQ, dK, dV = results
        to, run = part
        b, q0, k0, head_kv, group, column, tokens, keys, padding = where
        scale, cap, left, right = numbers
        K_tile = T.alloc_shared((block_N, dim), dtype)
        if dK is not None:
            V_tile = T.alloc_shared((block_N, dim), dtype)
        Q_tile = T.alloc_shared((block_M, dim), dtype)
        dO_tile = T.alloc_shared((block_M, dim), dtype)
        base = T.alloc_shared((block_M,), "float32")
        scores = T.alloc_fragment((block_N, block_M), "float32")  # transposed: a row is a key
        if dK is not None:
            delta = T.alloc_shared((block_M,), "float32")
            slopes = T.alloc_fragment((block_N, block_M), "float32")
            rounded = between((block_N, block_M), dtype)
            of_keys = T.alloc_fragment((block_N, dim), "float32")
        if dV is not None:
            weights = between((block_N, block_M), dtype)
            of_values = T.alloc_fragment((block_N, dim), "float32")

        past = keys - tokens
        exponent = LOG2_E if softcap else scale * LOG2_E

        T.copy(K[b, k0 + column : k0 + column + block_N, head_kv, :], K_tile)
        if dK is not None:
            T.copy(V[b, k0 + column : k0 + column + block_N, head_kv, :], V_tile)
            T.clear(of_keys)
        if dV is not None:
            T.clear(of_values)

        # Tiles of queries that see one of these keys.
        if mask == "full":
            first, end = 0, tokens
        elif mask == "causal":
            first, end = T.max(column - past, 0) // block_M, tokens
        else:
            first = T.max(column - past - right, 0) // block_M
            end = T.max(T.min(column + block_N - past + left, tokens), 0)
        if packed:
            end = T.if_then_else(column < keys, end, 0)  # blocks past a short sequence's end have nothing to do
        tiles = T.max(T.ceildiv(end, block_M) - first, 0)
        begin, steps = steps_of(0, tiles * group, run)
        for step in T.Pipelined(begin, steps, num_stages=stages):
            head = head_kv * group + T.truncdiv(step, tiles)
            row = (first + T.truncmod(step, tiles)) * block_M
            T.copy(Q[b, q0 + row : q0 + row + block_M, head, :], Q_tile)
            T.gemm(K_tile, Q_tile, scores, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
            T.copy(dO[b, q0 + row : q0 + row + block_M, head, :], dO_tile)
            T.copy(Base[b, head, padding + row : padding + row + block_M], base)
            if dK is not None:
                if not late:
                    T.gemm(V_tile, dO_tile, slopes, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
                T.copy(Delta[b, head, padding + row : padding + row + block_M], delta)
            if softcap:
                for j, i in T.Parallel(block_N, block_M):
                    capped = 1 - 2 / (1 + T.exp2(scores[j, i] * (2 * LOG2_E * scale / cap)))
                    scores[j, i] = cap * capped
                    if dK is not None:
                        slopes[j, i] = (slopes[j, i] - delta[i]) * (1 - capped * capped)
            elif dK is not None and not late:
                for j, i in T.Parallel(block_N, block_M):
                    slopes[j, i] -= delta[i]
            if mask != "full":
                reach = 0 if mask == "causal" else right
                crossed = column + block_N - 1 > row + past + reach
                if mask == "window":
                    crossed = crossed or column < row + block_M - 1 + past - left
                if crossed:
                    for j, i in T.Parallel(block_N, block_M):
                        seen = column + j <= row + i + past + reach
                        if mask == "window":
                            seen = seen and column + j >= row + i + past - left
                        scores[j, i] = T.if_then_else(seen, scores[j, i], -T.infinity("float32"))
            for j, i in T.Parallel(block_N, block_M):
                scores[j, i] = T.exp2(scores[j, i] * exponent - base[i])
            if dV is not None:
                T.copy(scores, weights)
                T.gemm(weights, dO_tile, of_values, policy=T.GemmWarpPolicy.FullRow)
            if dK is not None:
                if late:
                    T.gemm(V_tile, dO_tile, slopes, transpose_B=True, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
                    for j, i in T.Parallel(block_N, block_M):
                        slopes[j, i] -= delta[i]
                for j, i in T.Parallel(block_N, block_M):
                    slopes[j, i] *= scores[j, i]
                T.copy(slopes, rounded)
                T.gemm(rounded, Q_tile, of_keys, policy=T.GemmWarpPolicy.FullRow)
            if dQ is not None:
                of_queries = T.alloc_fragment((block_M, dim), "float32")
                T.gemm(rounded, K_tile, of_queries, transpose_A=True, clear_accum=True)
                for i, d in T.Parallel(block_M, dim):
                    dQ[b, row + i, head, d] += of_queries[i, d] * scale

        if dK is not None:
            for j, d in T.Parallel(block_N, dim):
                of_keys[j, d] *= scale
            keep(of_keys, dK, (to, k0, column, head_kv), keys, packed)
        if dV is not None:
            keep(of_values, dV, (to, k0, column, head_kv), keys, packed)

    return block


def sinks():
    """A head's sink: -sum of exp(sink - lse) * delta over its rows, in order, by one block."""
    batch, heads, padded = T.dynamic("batch"), T.dynamic("heads"), T.dynamic("padded")

    @T.prim_func
    def attention_dsinks(
        Sinks: T.Tensor((heads,), "float32"),
        Base: T.Tensor((batch, heads, padded), "float32"),
        Delta: T.Tensor((batch, heads, padded), "float32"),
        dSinks: T.Tensor((heads,), "float32"),
    ):
        with T.Kernel(heads, threads=128) as head:
            T.pdl_sync()
            sums = T.alloc_fragment((ROWS,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.clear(sums)
            for b in T.serial(batch):
                for k in T.serial(T.ceildiv(padded, ROWS)):
                    for i in T.Parallel(ROWS):
                        row = k * ROWS + i
                        sums[i] += T.exp2(Sinks[head] * LOG2_E - Base[b, head, row]) * Delta[b, head, row]
            T.reduce_sum(sums, total, dim=0)
            dSinks[head] = -total[0]

    return attention_dsinks
