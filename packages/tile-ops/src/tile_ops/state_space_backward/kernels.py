"""The backward pass of Mamba-2's scan in tile language.

Names as in `state_space/kernels.py`; G is the gradient of the state after a chunk. Within a chunk, for one head,

    dX_m = exp(s_end - s_m) G B_m   + sum over l >= m of exp(s_l - s_m) (C_l . B_m) dy_l,       dx_m = dt_m dX_m + D dy_m
    dC_l = exp(s_l) H^T dy_l        + sum over m <= l of exp(s_l - s_m) dt_m (dy_l . x_m) B_m,  summed over heads
    dB_m = exp(s_end - s_m) dt_m G^T x_m + sum over l >= m of exp(s_l - s_m) dt_m (dy_l . x_m) C_l,  summed over heads

The gradient of a_t = dt_t A is <G, h_end> + sum over t <= l <= end of (C_l . dC_l - B_l . dB_l), with dC and dB of a head:
each pair of tokens on both sides of t counts once. Sums of a head stay within a chunk, so that nothing large cancels. That of
dt_t is A times it, and B_t . dB_t / dt_t.

x, dy: (batch, seqlen, nheads, headdim), B, C: (batch, seqlen, ngroups, dstate), values of tokens: (batch, nheads, nchunks,
chunk_size) in float32, before, after: (batch, nchunks, nheads, headdim, dstate).
"""

import math

import tilelang.language as T

LOG2E = math.log2(math.e)


def tokens_of(chunks, chunk, chunk_size, seqlen, packed):
    """First token of a chunk, and the one after its last."""
    if packed:
        return chunks[chunk, 0], chunks[chunk, 1]
    return chunk * chunk_size, T.min(chunk * chunk_size + chunk_size, seqlen)


def gate_backward(dtype, block):
    """Of y = u silu(z), with u the ungated result: du = dy silu(z), dz = dy u silu'(z)."""
    n = T.dynamic("n")

    @T.prim_func
    def gate_backward(
        dy: T.Tensor((n,), dtype),
        u: T.Tensor((n,), dtype),
        z: T.Tensor((n,), dtype),
        du: T.Tensor((n,), dtype),
        dz: T.Tensor((n,), dtype),
    ):
        with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
            for t in T.Parallel(block):
                i = bx * block + t
                g, gradient = T.cast(z[i], "float32"), T.cast(dy[i], "float32")
                part = T.sigmoid(g)
                du[i] = gradient * g * part
                dz[i] = gradient * u[i] * part * (1.0 + g * (1.0 - part))

    return gate_backward


def inputs_backward(dtype, chunk_size, headdim, dstate, block, stages, part, threads, skip, packed):
    """dx of `block` tokens of a head; `skipped` = x . dy of each token, whose sum is the gradient of D.

    Of a gradient of a state `part` columns at a time.
    """
    batch, seqlen, nheads, ngroups, nchunks = T.dynamic("batch, seqlen, nheads, ngroups, nchunks")
    columns, depth = -(-headdim // 16) * 16, -(-dstate // 16) * 16
    tiles = chunk_size // block

    @T.prim_func
    def inputs_backward(
        B: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        C: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        x: T.Tensor((batch, seqlen, nheads, headdim), dtype),
        dy: T.Tensor((batch, seqlen, nheads, headdim), dtype),
        dt: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        dA_cumsum: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        after: T.Tensor((batch, nchunks, nheads, headdim, dstate), dtype),
        D: T.Tensor((nheads if skip else T.dynamic("none"),), "float32"),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        dx: T.Tensor((batch, seqlen, nheads, headdim), dtype),
        skipped: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        per_group: T.int32,
    ):
        with T.Kernel(per_group * tiles, ngroups, batch * nchunks, threads=threads) as (bx, group, bz):
            B_tile = T.alloc_shared((block, depth), dtype)
            C_tile = T.alloc_shared((block, depth), dtype)
            dy_tile = T.alloc_shared((block, columns), dtype)
            state_tile = T.alloc_shared((columns, part), dtype)
            scores = T.alloc_fragment((block, block), "float32")
            weights = T.alloc_fragment((block, block), dtype)
            row_sum = T.alloc_fragment((block,), "float32")
            column_sum = T.alloc_fragment((block,), "float32")
            acc = T.alloc_fragment((block, columns), "float32")
            products = T.alloc_fragment((block, columns), "float32")
            dots = T.alloc_fragment((block,), "float32")

            b, chunk = bz // nchunks, bz % nchunks
            head, row = group * per_group + bx // tiles, bx % tiles * block
            begin, end = tokens_of(chunks, chunk, chunk_size, seqlen, packed)
            token = begin + row
            if token < end:
                T.copy(B[b, token : token + block, group, 0:depth], B_tile)
                if part == depth:
                    T.copy(after[b, chunk, head, 0:columns, 0:depth], state_tile)
                    T.gemm(B_tile, state_tile, acc, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                else:
                    T.clear(acc)
                    for n in T.serial(depth // part):
                        T.copy(after[b, chunk, head, 0:columns, n * part : (n + 1) * part], state_tile)
                        B_part = B_tile[:, n * part : (n + 1) * part]
                        T.gemm(B_part, state_tile, acc, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                # Factors come after differences: a product that is contracted with the subtraction would leave the rounding
                # of a large sum in the exponent of a token's own weight.
                s_end = dA_cumsum[b, head, chunk, chunk_size - 1]
                for i in T.Parallel(block):
                    row_sum[i] = dA_cumsum[b, head, chunk, row + i]
                for i, j in T.Parallel(block, columns):
                    acc[i, j] *= T.exp2((s_end - row_sum[i]) * LOG2E)
                for k in T.Pipelined(T.ceildiv(end - token, block), num_stages=stages):
                    column = row + k * block
                    first = begin + column
                    T.copy(C[b, first : first + block, group, 0:depth], C_tile)
                    T.copy(dy[b, first : first + block, head, 0:columns], dy_tile)
                    for j in T.Parallel(block):
                        column_sum[j] = dA_cumsum[b, head, chunk, column + j]
                    T.gemm(B_tile, C_tile, scores, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                    for i, j in T.Parallel(block, block):
                        w = scores[i, j] * T.exp2((column_sum[j] - row_sum[i]) * LOG2E)
                        seen = row + i <= column + j and first + j < end
                        weights[i, j] = T.if_then_else(seen, w, 0.0)
                    T.gemm(weights, dy_tile, acc, policy=T.GemmWarpPolicy.FullRow)
                d = D[head] if skip else 0.0
                for i, j in T.Parallel(block, columns):
                    gradient = T.cast(dy[b, token + i, head, j], "float32")
                    products[i, j] = T.if_then_else(j < headdim, gradient * x[b, token + i, head, j], 0.0)
                    if token + i < end and j < headdim:
                        dx[b, token + i, head, j] = acc[i, j] * dt[b, head, chunk, row + i] + d * gradient
                T.reduce_sum(products, dots, dim=1)
                T.copy(dots, skipped[b, head, chunk, row : row + block])

    return inputs_backward


def factors_backward(dtype, chunk_size, headdim, dstate, block, stages, part, threads, packed, reverse):
    """dC of `block` tokens of a group, or dB with `reverse`; `dots` has C . dC, or B . dB, of each token and head.

    dC: p, q = dy, x; r, factor = B, C; states before chunks. dB: p, q = x, dy; r, factor = C, B; gradients after them.
    Of a state `part` rows at a time. The weight of a pair of tokens is the same number in both before it is rounded, so that
    what a token does to itself, which no decay touches, cancels in the difference of the dots.
    """
    batch, seqlen, nheads, ngroups, nchunks = T.dynamic("batch, seqlen, nheads, ngroups, nchunks")
    columns, depth = -(-headdim // 16) * 16, -(-dstate // 16) * 16
    tiles = chunk_size // block
    shared = (
        threads > 2 * block
    )  # warps side by side have some columns of the scores each, and need all weights of a row

    @T.prim_func
    def factors_backward(
        p: T.Tensor((batch, seqlen, nheads, headdim), dtype),
        q: T.Tensor((batch, seqlen, nheads, headdim), dtype),
        r: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        factor: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        dt: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        dA_cumsum: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        states: T.Tensor((batch, nchunks, nheads, headdim, dstate), dtype),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        gradient: T.Tensor((batch, seqlen, ngroups, dstate), dtype),
        dots: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        per_group: T.int32,
    ):
        with T.Kernel(tiles, ngroups, batch * nchunks, threads=threads) as (bx, group, bz):
            p_tile = T.alloc_shared((block, columns), dtype)
            q_tile = T.alloc_shared((block, columns), dtype)
            r_tile = T.alloc_shared((block, depth), dtype)
            state_tile = T.alloc_shared((part, depth), dtype)
            factor_tile = T.alloc_shared((block, depth), dtype)
            scores = T.alloc_fragment((block, block), "float32")
            weights = (T.alloc_shared if shared else T.alloc_fragment)((block, block), dtype)
            row_sum = T.alloc_fragment((block,), "float32")
            column_sum = T.alloc_fragment((block,), "float32")
            step = T.alloc_fragment((block,), "float32")
            acc = T.alloc_fragment((block, depth), "float32")
            total = T.alloc_fragment((block, depth), "float32")
            products = T.alloc_fragment((block, depth), "float32")
            dot = T.alloc_fragment((block,), "float32")

            b, chunk = bz // nchunks, bz % nchunks
            row = bx * block
            begin, end = tokens_of(chunks, chunk, chunk_size, seqlen, packed)
            token = begin + row
            if token < end:
                T.copy(factor[b, token : token + block, group, 0:depth], factor_tile)
                T.clear(total)
                for h in T.serial(per_group):
                    head = group * per_group + h
                    T.copy(p[b, token : token + block, head, 0:columns], p_tile)
                    if part == columns:
                        T.copy(states[b, chunk, head, 0:columns, 0:depth], state_tile)
                        T.gemm(p_tile, state_tile, acc, clear_accum=True, policy=T.GemmWarpPolicy.FullRow)
                    else:
                        T.clear(acc)
                        for n in T.serial(columns // part):
                            T.copy(states[b, chunk, head, n * part : (n + 1) * part, 0:depth], state_tile)
                            p_part = p_tile[:, n * part : (n + 1) * part]
                            T.gemm(p_part, state_tile, acc, policy=T.GemmWarpPolicy.FullRow)
                    s_end = dA_cumsum[b, head, chunk, chunk_size - 1] if reverse else 0.0
                    for i in T.Parallel(block):
                        row_sum[i] = dA_cumsum[b, head, chunk, row + i]
                        if reverse:
                            step[i] = dt[b, head, chunk, row + i]
                    for i, j in T.Parallel(block, depth):
                        if reverse:
                            acc[i, j] *= T.exp2((s_end - row_sum[i]) * LOG2E) * step[i]
                        else:
                            acc[i, j] *= T.exp2(row_sum[i] * LOG2E)
                    first_tile = bx if reverse else 0
                    last_tile = T.ceildiv(end - begin, block) if reverse else bx + 1
                    for k in T.Pipelined(last_tile - first_tile, num_stages=stages):
                        column = (first_tile + k) * block
                        first = begin + column
                        T.copy(q[b, first : first + block, head, 0:columns], q_tile)
                        T.copy(r[b, first : first + block, group, 0:depth], r_tile)
                        for j in T.Parallel(block):
                            column_sum[j] = dA_cumsum[b, head, chunk, column + j]
                            if not reverse:
                                step[j] = dt[b, head, chunk, column + j]
                        T.gemm(
                            p_tile, q_tile, scores, transpose_B=True, clear_accum=True, policy=T.GemmWarpPolicy.FullRow
                        )
                        for i, j in T.Parallel(block, block):
                            if reverse:
                                w = scores[i, j] * T.exp2((column_sum[j] - row_sum[i]) * LOG2E) * step[i]
                                seen = row + i <= column + j and first + j < end
                            else:
                                w = scores[i, j] * T.exp2((row_sum[i] - column_sum[j]) * LOG2E) * step[j]
                                seen = column + j <= row + i
                            weights[i, j] = T.if_then_else(seen, w, 0.0)
                        T.gemm(weights, r_tile, acc, policy=T.GemmWarpPolicy.FullRow)
                    for i, j in T.Parallel(block, depth):
                        products[i, j] = acc[i, j] * factor_tile[i, j]
                    T.reduce_sum(products, dot, dim=1)
                    T.copy(dot, dots[b, head, chunk, row : row + block])
                    for i, j in T.Parallel(block, depth):
                        total[i, j] += acc[i, j]
                for i, j in T.Parallel(block, depth):
                    if token + i < end and j < dstate:
                        gradient[b, token + i, group, j] = total[i, j]

    return factors_backward


def edges(dtype, chunk_size, headdim, dstate, block):
    """<G, h_end> of each chunk, with h_end = exp(s_end) H + states."""
    batch, nheads, nchunks = T.dynamic("batch, nheads, nchunks")
    size = headdim * dstate

    @T.prim_func
    def edges(
        after: T.Tensor((batch, nchunks, nheads, size), dtype),
        before: T.Tensor((batch, nchunks, nheads, size), dtype),
        states: T.Tensor((batch, nchunks, nheads, size), "float32"),
        dA_cumsum: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        out: T.Tensor((batch, nheads, nchunks), "float32"),
    ):
        with T.Kernel(nchunks, nheads, batch, threads=128) as (chunk, head, b):
            products = T.alloc_fragment((block,), "float32")
            total = T.alloc_fragment((1,), "float32")
            decay = T.exp(dA_cumsum[b, head, chunk, chunk_size - 1])
            T.clear(products)
            for k in T.serial(T.ceildiv(size, block)):
                for t in T.Parallel(block):
                    i = k * block + t
                    end = decay * before[b, chunk, head, i] + states[b, chunk, head, i]
                    products[t] += after[b, chunk, head, i] * end
            T.reduce_sum(products, total, dim=0)
            T.copy(total, out[b, head, chunk : chunk + 1])

    return edges


def steps_backward(dtype, chunk_size, block_heads, softplus, packed):
    """Gradients of the steps, and by chunks those of A, dt_bias and D (in this order)."""
    batch, seqlen, nheads, nchunks = T.dynamic("batch, seqlen, nheads, nchunks")
    tokens = (batch, nheads, nchunks, chunk_size)

    @T.prim_func
    def steps_backward(
        dt: T.Tensor((batch, seqlen, nheads), dtype),
        A: T.Tensor((nheads,), "float32"),
        dt_bias: T.Tensor((nheads,), "float32"),
        step: T.Tensor(tokens, "float32"),
        c_dots: T.Tensor(tokens, "float32"),
        b_dots: T.Tensor(tokens, "float32"),
        skipped: T.Tensor(tokens, "float32"),
        edge: T.Tensor((batch, nheads, nchunks), "float32"),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        ddt: T.Tensor((batch, seqlen, nheads), dtype),
        partial: T.Tensor((3, batch, nchunks, nheads), "float32"),
    ):
        with T.Kernel(nchunks, T.ceildiv(nheads, block_heads), batch, threads=128) as (chunk, by, b):
            sums = T.alloc_shared((block_heads, chunk_size), "float32")
            terms = [T.alloc_fragment((block_heads, chunk_size), "float32") for _ in range(3)]
            total = T.alloc_fragment((block_heads,), "float32")
            head = by * block_heads
            begin, end = tokens_of(chunks, chunk, chunk_size, seqlen, packed)
            for h, l in T.Parallel(block_heads, chunk_size):
                d = c_dots[b, head + h, chunk, l] - b_dots[b, head + h, chunk, l]
                sums[h, l] = T.if_then_else(begin + l < end, d, 0.0)
            T.cumsum(sums, dim=1, reverse=True)
            for h, l in T.Parallel(block_heads, chunk_size):
                t = T.cast(dt[b, begin + l, head + h], "float32") + dt_bias[head + h]
                slope = T.sigmoid(t) if softplus else T.if_then_else(t > 0.0, 1.0, 0.0)
                da = sums[h, l] + edge[b, head + h, chunk]
                own = b_dots[b, head + h, chunk, l] / step[b, head + h, chunk, l]
                own = T.if_then_else(step[b, head + h, chunk, l] > 0.0, own, 0.0)  # where a step is 0, its slope is
                gradient = slope * (own + A[head + h] * da)
                terms[0][h, l] = T.if_then_else(begin + l < end, step[b, head + h, chunk, l] * da, 0.0)
                terms[1][h, l] = T.if_then_else(begin + l < end, gradient, 0.0)
                terms[2][h, l] = T.if_then_else(begin + l < end, skipped[b, head + h, chunk, l], 0.0)
                if begin + l < end:
                    ddt[b, begin + l, head + h] = gradient
            for n in [0, 1, 2]:
                T.reduce_sum(terms[n], total, dim=1)
                T.copy(total, partial[n, b, chunk, head : head + block_heads])

    return steps_backward


def sum_chunks(block):
    """Sums over batch and chunks, one after the other: those of the first kind are the gradient of A, of the second that of
    dt_bias, of the third that of D. One that is not wanted has no elements."""
    kinds, rows, nheads = T.dynamic("kinds, rows, nheads")

    @T.prim_func
    def sum_chunks(
        partial: T.Tensor((kinds, rows, nheads), "float32"),
        dA: T.Tensor((nheads,), "float32"),
        dbias: T.Tensor((T.dynamic("biases"),), "float32"),
        dD: T.Tensor((T.dynamic("skips"),), "float32"),
    ):
        with T.Kernel(T.ceildiv(nheads, block), kinds, threads=128) as (bx, kind):
            total = T.alloc_fragment((block,), "float32")
            T.clear(total)
            for n in T.serial(rows):
                for h in T.Parallel(block):
                    total[h] += partial[kind, n, bx * block + h]
            if kind == 0:
                T.copy(total, dA[bx * block : (bx + 1) * block])
            elif kind == 1:
                T.copy(total, dbias[bx * block : (bx + 1) * block])
            else:
                T.copy(total, dD[bx * block : (bx + 1) * block])

    return sum_chunks
