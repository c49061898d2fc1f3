"""Mamba-2 in tile language: the scan h_t = exp(dt_t A) h_{t-1} + dt_t x_t B_t^T, y_t = h_t C_t + D x_t, by chunks.

With s the cumulative sum of dt A within a chunk and H the state before it, token l of the chunk gives

    y_l = exp(s_l) H C_l + sum over m <= l of (C_l . B_m) exp(s_l - s_m) dt_m x_m + D x_l,

and the chunk adds the sum over m of exp(s_end - s_m) dt_m x_m B_m^T to the state: matrix products, all exponents <= 0.

x, y, z: (batch, seqlen, nheads * headdim), B, C: (batch, seqlen, ngroups, dstate), dt, dA_cumsum: (batch, nheads, nchunks,
chunk_size) in float32, 0 and constant after a sequence's end, states: (batch, nchunks, nheads * headdim, dstate). Extents
but chunk_size, headdim and dstate are dynamic. `packed` sequences lie one after the other in a batch of one: `first` has
the number of each sequence's first chunk, `chunks` the first token of each chunk and the one after its last. `per_group`
heads share B and C.

Dao and Gu, Transformers are SSMs, 2024, section 6.
"""

import math

import tilelang.language as T
from tilelang.layout import make_swizzled_layout

LOG2E = math.log2(math.e)


def tokens_of(chunks, chunk, chunk_size, seqlen, packed):
    """First token of a chunk, and the one after its last."""
    if packed:
        return chunks[chunk, 0], chunks[chunk, 1]
    return chunk * chunk_size, T.min(chunk * chunk_size + chunk_size, seqlen)


def positive(t):
    """max(t, 0), but NaN for NaN."""
    return T.if_then_else(t <= 0.0, 0.0, t)


def chunk_table(chunk_size):
    """From the cumulative lengths of packed sequences to `first` and `chunks`; unused chunks hold no token."""
    sequences, nchunks = T.dynamic("sequences"), T.dynamic("nchunks")

    @T.prim_func
    def chunk_table(
        cu_seqlens: T.Tensor((sequences + 1,), "int32"),
        first: T.Tensor((sequences + 1,), "int32"),
        chunks: T.Tensor((nchunks, 2), "int32"),
    ):
        with T.Kernel(sequences + 1, threads=32) as sequence:
            begin = T.alloc_var("int32", init=0)
            for n in T.serial(sequence):
                begin += T.ceildiv(cu_seqlens[n + 1] - cu_seqlens[n], chunk_size)
            first[sequence] = begin
            token = cu_seqlens[sequence]
            after = cu_seqlens[T.min(sequence + 1, sequences)]  # the block after the last sequence ends the table
            used = T.if_then_else(sequence < sequences, T.ceildiv(after - token, chunk_size), nchunks - begin)
            for c in T.Parallel(used):
                chunks[begin + c, 0] = T.min(token + c * chunk_size, after)
                chunks[begin + c, 1] = T.min(token + (c + 1) * chunk_size, after)

    return chunk_table


def steps(dtype, chunk_size, block_heads, softplus, packed):
    """dt + dt_bias, by softplus or else by max(., 0), and the cumulative sums of dt A, by chunks."""
    batch, seqlen, nheads, nchunks = T.dynamic("batch, seqlen, nheads, nchunks")

    @T.prim_func
    def steps(
        dt: T.Tensor((batch, seqlen, nheads), dtype),
        A: T.Tensor((nheads,), "float32"),
        dt_bias: T.Tensor((nheads,), "float32"),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        dt_out: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        dA_cumsum: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
    ):
        with T.Kernel(nchunks, T.ceildiv(nheads, block_heads), batch, threads=128) as (chunk, by, b):
            step = T.alloc_shared((block_heads, chunk_size), "float32")
            sums = T.alloc_shared((block_heads, chunk_size), "float32")
            head = by * block_heads
            begin, end = tokens_of(chunks, chunk, chunk_size, seqlen, packed)
            for l, h in T.Parallel(chunk_size, block_heads):
                t = T.cast(dt[b, begin + l, head + h], "float32") + dt_bias[head + h]
                if softplus:  # max(t, 0) + log(1 + exp(-|t|)) does not overflow
                    t = T.max(t, 0.0) + T.log1p(T.exp(-T.abs(t)))
                step[h, l] = T.if_then_else(begin + l < end, positive(t), 0.0)
                sums[h, l] = step[h, l] * A[head + h]
            T.cumsum(sums, dim=1)
            T.copy(step, dt_out[b, head : head + block_heads, chunk, :])
            T.copy(sums, dA_cumsum[b, head : head + block_heads, chunk, :])

    return steps


def products(dtype, chunk_size, dstate, block_m, block_k, stages, threads, packed):
    """cb[l, m] = C_l . B_m for the tokens m <= l of a chunk, by groups; tiles above the diagonal are left unwritten."""
    batch, seqlen, ngroups, nchunks = T.dynamic("batch, seqlen, ngroups, nchunks")
    tiles = chunk_size // block_m

    @T.prim_func
    def products(
        C: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        B: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        cb: T.Tensor((batch, nchunks, ngroups, chunk_size, chunk_size), dtype),
    ):
        with T.Kernel(tiles * tiles, ngroups, batch * nchunks, threads=threads) as (tile, group, bz):
            C_tile = T.alloc_shared((block_m, block_k), dtype)
            B_tile = T.alloc_shared((block_m, block_k), dtype)
            acc = T.alloc_fragment((block_m, block_m), "float32")
            b, chunk = bz // nchunks, bz % nchunks
            row, column = tile // tiles * block_m, tile % tiles * block_m
            begin, end = tokens_of(chunks, chunk, chunk_size, seqlen, packed)
            if column <= row and begin + row < end:
                T.clear(acc)
                for k in T.Pipelined(T.ceildiv(dstate, block_k), num_stages=stages):
                    T.copy(C[b, begin + row : begin + row + block_m, group, k * block_k : (k + 1) * block_k], C_tile)
                    T.copy(
                        B[b, begin + column : begin + column + block_m, group, k * block_k : (k + 1) * block_k], B_tile
                    )
                    T.gemm(C_tile, B_tile, acc, transpose_B=True)
                T.copy(acc, cb[b, chunk, group, row : row + block_m, column : column + block_m])

    return products


def chunk_state(
    dtype,
    out_dtype,
    chunk_size,
    headdim,
    dstate,
    heads,
    turns,
    block_n,
    block_k,
    stages,
    threads,
    resident,
    packed,
    reverse=False,
):
    """What the tokens of a chunk add to the state, for `heads` heads of one group at a time, `turns` times.

    `resident`: B, which the heads of a group share, is read once and stays in shared memory, and x is weighted in
    registers. `reverse`: to the gradient of the state before the chunk, the sum of exp(s) x B^T; then x is dy and B is C.
    """
    batch, seqlen, nheads, ngroups, nchunks = T.dynamic("batch, seqlen, nheads, ngroups, nchunks")
    rows = -(-heads * headdim // 16) * 16  # past them a tile has features of the next head, which are not stored
    tiles = -(-dstate // block_n)
    staged = resident and rows == heads * headdim  # a tile of states has no row that must not be stored
    weighted_shape = (rows, block_k) if resident else (block_k, rows)

    @T.prim_func
    def chunk_state(
        B: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        x: T.Tensor((batch, seqlen, nheads * headdim), dtype),
        dt: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        dA_cumsum: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        states: T.Tensor((batch, nchunks, nheads * headdim, dstate), out_dtype),
        per_group: T.int32,
    ):
        with T.Kernel(per_group // (heads * turns) * tiles, ngroups, batch * nchunks, threads=threads) as (
            bx,
            group,
            bz,
        ):
            B_tile = T.alloc_shared((chunk_size if resident else block_k, block_n), dtype)
            x_tile = T.alloc_shared((block_k, rows), dtype)
            weighted = (T.alloc_fragment if resident else T.alloc_shared)(weighted_shape, dtype)
            step = T.alloc_shared((heads, chunk_size), "float32")
            sums = T.alloc_shared((heads, chunk_size), "float32")
            weight = T.alloc_shared((heads, chunk_size), "float32")
            acc = T.alloc_fragment((rows, block_n), "float32")
            if staged:
                made = T.alloc_shared((rows, block_n), out_dtype)

            b, chunk = bz // nchunks, bz % nchunks
            n = bx % tiles * block_n
            begin, end = tokens_of(chunks, chunk, chunk_size, seqlen, packed)
            if resident:
                T.copy(B[b, begin : begin + chunk_size, group, n : n + block_n], B_tile)
            if per_group > 0:  # so that no head is below 0, which a store by TMA needs to know
                for turn in T.Pipelined(turns, num_stages=2 if resident else 0):
                    head = group * per_group + (bx // tiles * turns + turn) * heads
                    p0 = head * headdim
                    T.copy(dA_cumsum[b, head : head + heads, chunk, :], sums)
                    if not reverse:
                        T.copy(dt[b, head : head + heads, chunk, :], step)
                    for h, l in T.Parallel(heads, chunk_size):
                        if reverse:
                            weight[h, l] = T.if_then_else(begin + l < end, T.exp(sums[h, l]), 0.0)
                        else:
                            weight[h, l] = T.exp(sums[h, chunk_size - 1] - sums[h, l]) * step[h, l]
                    T.clear(acc)
                    for k in T.Pipelined(
                        chunk_size // block_k if resident else T.ceildiv(end - begin, block_k), num_stages=stages
                    ):
                        l0 = k * block_k
                        T.copy(x[b, begin + l0 : begin + l0 + block_k, p0 : p0 + rows], x_tile)
                        if resident:
                            for p, l in T.Parallel(rows, block_k):
                                weighted[p, l] = x_tile[l, p] * weight[T.min(p // headdim, heads - 1), l0 + l]
                            T.gemm(weighted, B_tile[l0 : l0 + block_k, :], acc)
                        else:
                            T.copy(B[b, begin + l0 : begin + l0 + block_k, group, n : n + block_n], B_tile)
                            for l, p in T.Parallel(block_k, rows):
                                weighted[l, p] = x_tile[l, p] * weight[T.min(p // headdim, heads - 1), l0 + l]
                            T.gemm(weighted, B_tile, acc, transpose_A=True)
                    if staged:
                        T.copy(acc, made)
                        T.copy(made, states[b, chunk, p0 : p0 + rows, n : n + block_n])
                    else:
                        for p, j in T.Parallel(rows, block_n):
                            if p < heads * headdim and n + j < dstate:
                                states[b, chunk, p0 + p, n + j] = acc[p, j]

    return chunk_state


def pass_states(dtype, chunk_size, headdim, dstate, block, initial, packed, reverse=False):
    """The state before each chunk and after each sequence, from what the chunks add: one after the other, in float32.

    `reverse` goes through the chunks from the last to the first: gradients after each chunk and before each sequence.
    """
    batch, nheads, nchunks, sequences = T.dynamic("batch, nheads, nchunks, sequences")
    size = headdim * dstate

    @T.prim_func
    def pass_states(
        states: T.Tensor((batch, nchunks, nheads, size), "float32"),
        dA_cumsum: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        first: T.Tensor((T.dynamic("rows"),), "int32"),
        start: T.Tensor((T.dynamic("starts"), nheads, size), "float32"),
        before: T.Tensor((batch, nchunks, nheads, size), dtype),
        final: T.Tensor((sequences, nheads, size), "float32"),
    ):
        with T.Kernel(T.ceildiv(size, block), nheads, sequences, threads=128) as (bx, head, sequence):
            state = T.alloc_fragment((block,), "float32")
            b = 0 if packed else sequence
            c0 = first[sequence] if packed else 0
            count = first[sequence + 1] - first[sequence] if packed else nchunks
            if initial:
                T.copy(start[sequence, head, bx * block : (bx + 1) * block], state)
            else:
                T.clear(state)
            for step in T.serial(count):
                c = c0 + (count - 1 - step if reverse else step)
                T.copy(state, before[b, c, head, bx * block : (bx + 1) * block])
                decay = T.exp(dA_cumsum[b, head, c, chunk_size - 1])
                for i in T.Parallel(block):
                    state[i] = state[i] * decay + states[b, c, head, bx * block + i]
            T.copy(state, final[sequence, head, bx * block : (bx + 1) * block])

    return pass_states


def chunk_scan(
    dtype, chunk_size, headdim, dstate, heads, block_m, block_k, stages, threads, resident, skip, gate, packed
):
    """The outputs of `block_m` tokens of a chunk, for `heads` heads of one group, one after the other.

    `resident`: C and cb, which the heads share, are read once and stay in shared memory. `skip`: D x is added, as D on the
    diagonal of cb. `gate`: the result is multiplied with silu(z). Mamba-2's `scale` is 1.
    """
    batch, seqlen, nheads, ngroups, nchunks = T.dynamic("batch, seqlen, nheads, ngroups, nchunks")
    columns = -(-headdim // 16) * 16  # past headdim a tile has features of the next head, which are not stored
    states = -(-dstate // 16) * 16
    block_d = states if resident else min(block_k, states)
    tiles = chunk_size // block_m
    staged = resident and columns == headdim and not packed  # a tile of y has no element that must not be stored

    @T.prim_func
    def chunk_scan(
        cb: T.Tensor((batch, nchunks, ngroups, chunk_size, chunk_size), dtype),
        x: T.Tensor((batch, seqlen, nheads * headdim), dtype),
        dt: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        dA_cumsum: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        C: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        before: T.Tensor((batch, nchunks, nheads * headdim, dstate), dtype),
        D: T.Tensor((nheads if skip else T.dynamic("none"),), "float32"),
        z: T.Tensor((batch, seqlen, nheads * headdim if gate else T.dynamic("nothing")), dtype),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        y: T.Tensor((batch, seqlen, nheads * headdim), dtype),
        per_group: T.int32,
        scale: T.float32,
    ):
        with T.Kernel(per_group // heads * tiles, ngroups, batch * nchunks, threads=threads) as (bx, group, bz):
            C_tile = T.alloc_shared((block_m, block_d), dtype)
            cb_tile = T.alloc_shared((block_m, chunk_size if resident else block_k), dtype)
            state_tile = T.alloc_shared((columns, block_d), dtype)
            x_tile = T.alloc_shared((block_k, columns), dtype)
            if staged:
                y_tile = T.alloc_shared((block_m, columns), dtype)
            step = T.alloc_shared((chunk_size,), "float32")
            sums = T.alloc_shared((chunk_size,), "float32")
            decay = T.alloc_shared((chunk_size,), "float32")
            earlier = T.alloc_shared((chunk_size,), "float32")
            row_sum = T.alloc_fragment((block_m,), "float32")
            weights = T.alloc_fragment((block_m, block_k), dtype)
            acc = T.alloc_fragment((block_m, columns), "float32")

            b, chunk = bz // nchunks, bz % nchunks
            row = (tiles - 1 - bx % tiles) * block_m  # the rows with the most work first
            begin, end = tokens_of(chunks, chunk, chunk_size, seqlen, packed)
            token = begin + row
            if resident:
                T.annotate_layout({cb_tile: make_swizzled_layout(cb_tile)})
                T.copy(C[b, token : token + block_m, group, 0:block_d], C_tile)
                T.copy(cb[b, chunk, group, row : row + block_m, :], cb_tile)
            if token < end and per_group > 0:  # so that no head is below 0, which a store by TMA needs to know
                for h in T.Pipelined(heads, num_stages=2 if resident else 0):
                    head = group * per_group + bx // tiles * heads + h
                    p = head * headdim

                    # What the state before the chunk contributes.
                    T.clear(acc)
                    if resident:
                        T.copy(before[b, chunk, p : p + columns, 0:block_d], state_tile)
                        T.gemm(C_tile, state_tile, acc, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                    else:
                        for k in T.Pipelined(T.ceildiv(dstate, block_d), num_stages=stages):
                            T.copy(C[b, token : token + block_m, group, k * block_d : (k + 1) * block_d], C_tile)
                            T.copy(before[b, chunk, p : p + columns, k * block_d : (k + 1) * block_d], state_tile)
                            T.gemm(C_tile, state_tile, acc, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)

                    T.copy(dt[b, head, chunk, :], step)
                    T.copy(dA_cumsum[b, head, chunk, :], sums)
                    # Relative to the block's first row, so that no exponent is positive: decays from there to each row,
                    # and to there from each earlier token.
                    first = sums[row]
                    for j in T.Parallel(chunk_size):
                        s = (sums[j] - first) * LOG2E
                        decay[j] = s
                        earlier[j] = T.exp2(-s) * step[j]
                    for i in T.Parallel(block_m):
                        row_sum[i] = decay[row + i]
                    for i, j in T.Parallel(block_m, columns):
                        acc[i, j] *= T.exp2(first * LOG2E)

                    # What the tokens of the chunk up to each row's contribute; later columns are never visited.
                    for k in T.Pipelined((row + block_m) // block_k, num_stages=stages):
                        column = k * block_k
                        if not resident:
                            T.copy(cb[b, chunk, group, row : row + block_m, column : column + block_k], cb_tile)
                        T.copy(x[b, begin + column : begin + column + block_k, p : p + columns], x_tile)
                        at = column if resident else 0
                        if column + block_k > row:  # a tile that the diagonal crosses
                            if column == row:
                                for i, j in T.Parallel(block_m, columns):
                                    acc[i, j] *= T.exp2(row_sum[i])
                            d = D[head] if skip else 0.0
                            for i, j in T.Parallel(block_m, block_k):
                                w = T.exp2(row_sum[i] - decay[column + j]) * step[column + j]
                                w *= cb_tile[i, at + j]
                                if skip:
                                    w += T.if_then_else(column + j == row + i, d, 0.0)
                                weights[i, j] = T.if_then_else(column + j <= row + i, w, 0.0)
                        else:
                            for i, j in T.Parallel(block_m, block_k):
                                weights[i, j] = cb_tile[i, at + j] * earlier[column + j]
                        T.gemm(weights, x_tile, acc, policy=T.GemmWarpPolicy.FullRow)

                    for i, j in T.Parallel(block_m, columns):
                        acc[i, j] *= scale
                    if gate:
                        for i, j in T.Parallel(block_m, columns):
                            g = T.cast(z[b, token + i, p + j], "float32")
                            acc[i, j] *= g * T.sigmoid(g)
                    if staged:
                        T.copy(acc, y_tile)
                        T.copy(y_tile, y[b, token : token + block_m, p : p + columns])
                    else:
                        for i, j in T.Parallel(block_m, columns):
                            if token + i < end and j < headdim:
                                y[b, token + i, p + j] = acc[i, j]

    return chunk_scan


def step(dtype, dt_dtype, headdim, dstate, rows, softplus, skip, gate):
    """One token: a block takes `rows` rows of a head's state, decays it, adds dt x B^T and reads it with C, in one pass."""
    batch, nheads, ngroups = T.dynamic("batch, nheads, ngroups")

    @T.prim_func
    def step(
        state: T.Tensor((batch, nheads, headdim, dstate), "float32"),
        x: T.Tensor((batch, nheads, headdim), dtype),
        dt: T.Tensor((batch, nheads), dt_dtype),
        A: T.Tensor((nheads,), "float32"),
        dt_bias: T.Tensor((nheads,), "float32"),
        B: T.Tensor((batch, ngroups, dstate), dtype),
        C: T.Tensor((batch, ngroups, dstate), dtype),
        D: T.Tensor((nheads if skip else T.dynamic("none"),), "float32"),
        z: T.Tensor((batch, nheads, headdim if gate else T.dynamic("nothing")), dtype),
        y: T.Tensor((batch, nheads, headdim), dtype),
        per_group: T.int32,
    ):
        with T.Kernel(T.ceildiv(headdim, rows), nheads, batch, threads=128) as (bx, head, b):
            tile = T.alloc_fragment((rows, dstate), "float32")
            read = T.alloc_fragment((rows, dstate), "float32")
            out = T.alloc_fragment((rows,), "float32")
            p, group = bx * rows, T.truncdiv(head, per_group)
            t = T.cast(dt[b, head], "float32") + dt_bias[head]
            if softplus:
                t = T.max(t, 0.0) + T.log1p(T.exp(-T.abs(t)))
            t = positive(t)
            decay = T.exp(t * A[head])
            T.copy(state[b, head, p : p + rows, :], tile)
            for i, j in T.Parallel(rows, dstate):
                tile[i, j] = tile[i, j] * decay + t * x[b, head, p + i] * B[b, group, j]
                read[i, j] = tile[i, j] * C[b, group, j]
            T.copy(tile, state[b, head, p : p + rows, :])
            T.reduce_sum(read, out, dim=1)
            for i in T.Parallel(rows):
                value = out[i] + (D[head] * x[b, head, p + i] if skip else 0.0)
                if gate:
                    g = T.cast(z[b, head, p + i], "float32")
                    value *= g * T.sigmoid(g)
                y[b, head, p + i] = value

    return step
