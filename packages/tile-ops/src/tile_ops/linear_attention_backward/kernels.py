"""The backward pass of linear attention in tile language: S_t = decay_t S_{t-1} + v_t k_t^T, o_t = scale S_t q_t.

With one decay for a whole state it is that of Mamba-2's scan with steps of 1 (`state_space_backward/kernels.py`), with scale
do in place of dy: only `scaled` and `decays_backward` are its own.

With a decay for each channel c of the keys, s is the cumulative sum of the gates within a chunk, S the state before the chunk
and D the gradient of the state after it. For the tokens i, j of a chunk, with P[i, j] = scale do_i . v_j and A[i, j] = scale
times the sum over c of q_ic k_jc exp(s_ic - s_jc),

    dq_i = exp(s_i) scale S^T do_i  + sum over j <= i of P[i, j] k_j exp(s_i - s_j)
    dk_j = exp(s_end - s_j) D^T v_j + sum over i >= j of P[i, j] q_i exp(s_i - s_j)
    dv_j = D (k_j exp(s_end - s_j)) + sum over i >= j of A[i, j] do_i

S after the chunk is exp(s_end) S + sum over j of v_j (k_j exp(s_end - s_j))^T, D before it is exp(s_end) D + scale sum over i
of do_i (q_i exp(s_i))^T. The gradient of gate t is the sum over the rows of D times S after the chunk, plus the sum over
l >= t in the chunk of (q_l dq_l - k_l dk_l): each pair of tokens on both sides of t counts once, and nothing large cancels.

Blocks of `block` tokens: pairs within one take the exponent of each pair, pairs of two are products of factors relative to
the border of a block between them, so that no exponent is positive, whatever the gates (Yang et al., Gated Linear Attention
Transformers with Hardware-Efficient Training, 2024, section 4).

q, k, gate: (batch, seqlen, heads, dim_k), v, do: (batch, seqlen, heads, dim_v), sums = s: as q, in float32, states: (batch,
nchunks, heads, dim_v, dim_k); `chunks`, `first` and `packed` as in `state_space/kernels.py`.
"""

import tilelang.language as T

#: As in `linear_attention/kernels.py`.
LEAST = -128.0


def logarithm(decay):
    """Of a decay, not below LEAST; NaN stays NaN."""
    value = T.cast(decay, "float32")
    return T.if_then_else(value < LEAST, LEAST, value)


def tokens_of(chunks, chunk, chunk_size, seqlen, packed):
    """First token of a chunk, and the one after its last."""
    if packed:
        return chunks[chunk, 0], chunks[chunk, 1]
    return chunk * chunk_size, T.min(chunk * chunk_size + chunk_size, seqlen)


@T.macro
def load(tile, source, b, first, end, head, column, channels):
    """Tokens from `first` on and channels from `column` on of a head, with zeros for those from `end` and `channels` on."""
    for i, c in T.Parallel(tile.shape[0], tile.shape[1]):
        inside = first + i < end and column + c < channels
        tile[i, c] = T.if_then_else(inside, source[b, first + i, head, column + c], 0.0)


@T.macro
def load_state(tile, source, b, chunk, head, row, rows, columns):
    """Channels of the values from `row` on of a state of a chunk, with zeros for those from `rows` and `columns` on."""
    for r, c in T.Parallel(tile.shape[0], tile.shape[1]):
        inside = row + r < rows and c < columns
        tile[r, c] = T.if_then_else(inside, source[b, chunk, head, row + r, c], 0.0)


def scaled(dtype, block):
    """scale do."""
    n = T.dynamic("n")

    @T.prim_func
    def scaled(do: T.Tensor((n,), dtype), out: T.Tensor((n,), dtype), scale: T.float32):
        with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
            for t in T.Parallel(block):
                out[bx * block + t] = do[bx * block + t] * scale

    return scaled


def decays_backward(dtype, chunk_size, block_heads, per_token, packed):
    """From C . dC and B . db of each token and the edges of chunks to the gradients of the decays: of each token, or the
    sums over the tokens of each chunk."""
    batch, seqlen, nheads, nchunks = T.dynamic("batch, seqlen, nheads, nchunks")
    tokens = (batch, nheads, nchunks, chunk_size)

    @T.prim_func
    def decays_backward(
        c_dots: T.Tensor(tokens, "float32"),
        b_dots: T.Tensor(tokens, "float32"),
        edge: T.Tensor((batch, nheads, nchunks), "float32"),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        ddecay: T.Tensor((batch, seqlen, nheads) if per_token else (batch, nchunks, nheads), dtype),
        length: T.int32,
    ):
        with T.Kernel(nchunks, T.ceildiv(nheads, block_heads), batch, threads=128) as (chunk, by, b):
            sums = T.alloc_shared((block_heads, chunk_size), "float32")
            terms = T.alloc_fragment((block_heads, chunk_size), "float32")
            total = T.alloc_fragment((block_heads,), "float32")
            head = by * block_heads
            begin, end = tokens_of(chunks, chunk, chunk_size, length, packed)
            for h, l in T.Parallel(block_heads, chunk_size):
                d = c_dots[b, head + h, chunk, l] - b_dots[b, head + h, chunk, l]
                sums[h, l] = T.if_then_else(begin + l < end, d, 0.0)
            T.cumsum(sums, dim=1, reverse=True)
            for h, l in T.Parallel(block_heads, chunk_size):
                da = sums[h, l] + edge[b, head + h, chunk]
                if per_token:
                    if begin + l < end:
                        ddecay[b, begin + l, head + h] = da
                else:
                    terms[h, l] = T.if_then_else(begin + l < end, da, 0.0)
            if not per_token:
                T.reduce_sum(terms, total, dim=1)
                T.copy(total, ddecay[b, chunk, head : head + block_heads])

    return decays_backward


def gate_sums(gate_dtype, chunk_size, dim_k, block, threads, packed):
    """Cumulative sums of the gates by chunks, of which there are `count`, for `block` channels."""
    batch, seqlen, heads = T.dynamic("batch, seqlen, heads")
    tiles = -(-dim_k // block)

    @T.prim_func
    def gate_sums(
        gate: T.Tensor((batch, seqlen, heads, dim_k), gate_dtype),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        sums: T.Tensor((batch, seqlen, heads, dim_k), "float32"),
        count: T.int32,
    ):
        with T.Kernel(count * tiles, heads, batch, threads=threads) as (bx, head, b):
            tile = T.alloc_shared((chunk_size, block), "float32")
            c0 = bx % tiles * block
            begin, end = tokens_of(chunks, bx // tiles, chunk_size, seqlen, packed)
            for t, c in T.Parallel(chunk_size, block):
                inside = begin + t < end and c0 + c < dim_k
                tile[t, c] = T.if_then_else(inside, logarithm(gate[b, begin + t, head, c0 + c]), 0.0)
            T.cumsum(tile, dim=0)
            for t, c in T.Parallel(chunk_size, block):
                if begin + t < end and c0 + c < dim_k:
                    sums[b, begin + t, head, c0 + c] = tile[t, c]

    return gate_sums


def gated_chunk_state(dtype, chunk_size, dim_k, dim_v, block_k, block_v, threads, packed, reverse):
    """What a chunk adds to the state, the sum of v (k exp(s_end - s))^T; with `reverse`, where v is do and k is q, to the
    gradient of the state before the chunk, the sum of do (q exp(s))^T. Times scale."""
    batch, seqlen, heads, nchunks = T.dynamic("batch, seqlen, heads, nchunks")
    columns = -(-dim_k // block_k)
    tiles = -(-dim_v // block_v) * columns

    @T.prim_func
    def gated_chunk_state(
        v: T.Tensor((batch, seqlen, heads, dim_v), dtype),
        k: T.Tensor((batch, seqlen, heads, dim_k), dtype),
        sums: T.Tensor((batch, seqlen, heads, dim_k), "float32"),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        states: T.Tensor((batch, nchunks, heads, dim_v, dim_k), "float32"),
        scale: T.float32,
    ):
        with T.Kernel(nchunks * tiles, heads, batch, threads=threads) as (bx, head, b):
            v_tile = T.alloc_shared((chunk_size, block_v), dtype)
            weighted = T.alloc_shared((chunk_size, block_k), dtype)
            acc = T.alloc_fragment((block_v, block_k), "float32")
            chunk, r0, c0 = bx // tiles, bx % tiles // columns * block_v, bx % columns * block_k
            begin, end = tokens_of(chunks, chunk, chunk_size, seqlen, packed)
            if begin < end:
                load(v_tile, v, b, begin, end, head, r0, dim_v)
                for t, c in T.Parallel(chunk_size, block_k):
                    inside = begin + t < end and c0 + c < dim_k
                    s = sums[b, begin + t, head, c0 + c]
                    decay = T.exp(s if reverse else sums[b, end - 1, head, c0 + c] - s)
                    weighted[t, c] = T.if_then_else(inside, k[b, begin + t, head, c0 + c] * decay, 0.0)
                T.gemm(v_tile, weighted, acc, transpose_A=True, clear_accum=True)
                for r, c in T.Parallel(block_v, block_k):
                    if r0 + r < dim_v and c0 + c < dim_k:
                        states[b, chunk, head, r0 + r, c0 + c] = acc[r, c] * scale

    return gated_chunk_state


def gated_pass_states(dtype, chunk_size, dim_k, dim_v, block, initial, packed, reverse, by_vectors):
    """The state before each chunk and after each sequence, in float32; with `reverse`, from the last chunk to the first, the
    gradient of the state after each chunk and before each sequence. `by_vectors`, for a CPU: `block` elements are whole rows
    of channels, which share the exponents."""
    batch, seqlen, heads, nchunks, sequences = T.dynamic("batch, seqlen, heads, nchunks, sequences")
    size = dim_v * dim_k

    @T.prim_func
    def gated_pass_states(
        states: T.Tensor((batch, nchunks, heads, size), "float32"),
        sums: T.Tensor((batch, seqlen, heads, dim_k), "float32"),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        first: T.Tensor((T.dynamic("bounds"),), "int32"),
        start: T.Tensor((T.dynamic("starts"), heads, size), "float32"),
        beside: T.Tensor((batch, nchunks, heads, size), dtype),
        far: T.Tensor((sequences, heads, size), "float32"),
    ):
        with T.Kernel(T.ceildiv(size, block), heads, sequences, threads=128) as (bx, head, sequence):
            state = T.alloc_fragment((block,), "float32")
            decays = T.alloc_fragment((dim_k,), "float32")
            b = 0 if packed else sequence
            c0 = first[sequence] if packed else 0
            count = first[sequence + 1] - first[sequence] if packed else nchunks
            if initial:
                T.copy(start[sequence, head, bx * block : (bx + 1) * block], state)
            else:
                T.clear(state)
            for step in T.serial(count):
                chunk = c0 + (count - 1 - step if reverse else step)
                T.copy(state, beside[b, chunk, head, bx * block : (bx + 1) * block])
                _, end = tokens_of(chunks, chunk, chunk_size, seqlen, packed)
                if by_vectors:
                    for c in T.Parallel(dim_k):
                        decays[c] = T.exp(sums[b, end - 1, head, c])
                    for r, c in T.Parallel(block // dim_k, dim_k):
                        i = r * dim_k + c
                        state[i] = state[i] * decays[c] + states[b, chunk, head, bx * block + i]
                else:
                    for i in T.Parallel(block):
                        decay = T.exp(sums[b, end - 1, head, (bx * block + i) % dim_k])
                        state[i] = state[i] * decay + states[b, chunk, head, bx * block + i]
            T.copy(state, far[sequence, head, bx * block : (bx + 1) * block])

    return gated_pass_states


def queries_backward(dtype, chunk_size, dim_k, dim_v, block, block_v, threads, packed, by_vectors):
    """dq of `block` tokens, and q dq in float32 in `products`; values by `block_v` channels. `by_vectors`: as in
    `keys_values_backward`."""
    batch, seqlen, heads, nchunks = T.dynamic("batch, seqlen, heads, nchunks")
    depth, turns, blocks = -(-dim_k // 16) * 16, -(-dim_v // block_v), chunk_size // block

    @T.prim_func
    def queries_backward(
        do: T.Tensor((batch, seqlen, heads, dim_v), dtype),
        q: T.Tensor((batch, seqlen, heads, dim_k), dtype),
        k: T.Tensor((batch, seqlen, heads, dim_k), dtype),
        v: T.Tensor((batch, seqlen, heads, dim_v), dtype),
        sums: T.Tensor((batch, seqlen, heads, dim_k), "float32"),
        before: T.Tensor((batch, nchunks, heads, dim_v, dim_k), dtype),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        dq: T.Tensor((batch, seqlen, heads, dim_k), dtype),
        products: T.Tensor((batch, seqlen, heads, dim_k), "float32"),
        scale: T.float32,
    ):
        with T.Kernel(nchunks * blocks, heads, batch, threads=threads) as (bx, head, b):
            do_tile = T.alloc_shared((block, block_v), dtype)
            v_tile = T.alloc_shared((chunk_size, block_v), dtype)
            state_tile = T.alloc_shared((block_v, depth), dtype)
            earlier = T.alloc_shared((chunk_size, depth), dtype)
            k_tile = T.alloc_shared((block, depth), dtype)
            s = T.alloc_shared((block, depth), "float32")
            border = T.alloc_shared((depth,), "float32")
            pairs = T.alloc_shared((block, chunk_size), "float32")
            weights = T.alloc_shared((block, chunk_size), dtype)
            dots = T.alloc_fragment((block, chunk_size), "float32")
            acc = T.alloc_fragment((block, depth), "float32")

            chunk, row = bx // blocks, bx % blocks * block
            begin, end = tokens_of(chunks, chunk, chunk_size, seqlen, packed)
            token = begin + row
            if token < end:
                T.clear(acc)
                T.clear(dots)
                for n in T.serial(turns):
                    load(do_tile, do, b, token, end, head, n * block_v, dim_v)
                    load(v_tile, v, b, begin, end, head, n * block_v, dim_v)
                    load_state(state_tile, before, b, chunk, head, n * block_v, dim_v, dim_k)
                    T.gemm(do_tile, state_tile, acc)
                    T.gemm(do_tile, v_tile, dots, transpose_B=True)
                for i, j in T.Parallel(block, chunk_size):
                    pairs[i, j] = dots[i, j] * scale
                for i, j in T.Parallel(block, chunk_size):
                    weights[i, j] = T.if_then_else(j < row, pairs[i, j], 0.0)

                # Of the state before the chunk and the tokens before the block: decays up to the block's border, then on.
                for c in T.Parallel(depth):
                    border[c] = T.if_then_else(row > 0 and c < dim_k, sums[b, token - 1, head, c], 0.0)
                for i, c in T.Parallel(block, depth):
                    inside = token + i < end and c < dim_k
                    k_tile[i, c] = T.if_then_else(inside, k[b, token + i, head, c], 0.0)
                    s[i, c] = T.if_then_else(inside, sums[b, token + i, head, c], 0.0)
                if by_vectors:
                    T.clear(earlier)
                    for j in T.serial(row):
                        for c in T.Parallel(dim_k):
                            earlier[j, c] = k[b, begin + j, head, c] * T.exp(border[c] - sums[b, begin + j, head, c])
                else:
                    for j, c in T.Parallel(chunk_size, depth):
                        decayed = k[b, begin + j, head, c] * T.exp(border[c] - sums[b, begin + j, head, c])
                        earlier[j, c] = T.if_then_else(j < row and c < dim_k, decayed, 0.0)
                for i, c in T.Parallel(block, depth):
                    acc[i, c] *= T.exp(border[c]) * scale
                T.gemm(weights, earlier, acc)

                for i, c in T.Parallel(block, depth):
                    own = T.alloc_var("float32", init=0.0)
                    for j in T.serial(i + 1):
                        own += pairs[i, row + j] * k_tile[j, c] * T.exp(s[i, c] - s[j, c])
                    acc[i, c] = acc[i, c] * T.exp(s[i, c] - border[c]) + own
                for i, c in T.Parallel(block, depth):
                    if token + i < end and c < dim_k:
                        dq[b, token + i, head, c] = acc[i, c]
                        products[b, token + i, head, c] = acc[i, c] * q[b, token + i, head, c]

    return queries_backward


def keys_values_backward(dtype, chunk_size, dim_k, dim_v, block, block_v, threads, packed, by_vectors):
    """dk and dv of `block` tokens, and k dk in float32 in `products`; values by `block_v` channels.

    `by_vectors`, for a CPU: loops over channels are the innermost ones, an exponent of two tokens within the block serves both
    A and dk, and none is taken of tokens that have no part in it. On a GPU each thread takes two tokens, or one channel.
    """
    batch, seqlen, heads, nchunks = T.dynamic("batch, seqlen, heads, nchunks")
    depth, turns, blocks = -(-dim_k // 16) * 16, -(-dim_v // block_v), chunk_size // block

    @T.macro
    def values(decayed, state_tile, weights, do_tile, v_acc, dv, where):
        """dv of some channels: of the state after the chunk, and of the tokens in it."""
        b, token, head, n, end = where
        T.gemm(decayed, state_tile, v_acc, transpose_B=True, clear_accum=True)
        T.gemm(weights, do_tile, v_acc)
        for j, r in T.Parallel(block, block_v):
            if token + j < end and n * block_v + r < dim_v:
                dv[b, token + j, head, n * block_v + r] = v_acc[j, r]

    @T.prim_func
    def keys_values_backward(
        do: T.Tensor((batch, seqlen, heads, dim_v), dtype),
        q: T.Tensor((batch, seqlen, heads, dim_k), dtype),
        k: T.Tensor((batch, seqlen, heads, dim_k), dtype),
        v: T.Tensor((batch, seqlen, heads, dim_v), dtype),
        sums: T.Tensor((batch, seqlen, heads, dim_k), "float32"),
        after: T.Tensor((batch, nchunks, heads, dim_v, dim_k), dtype),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        dk: T.Tensor((batch, seqlen, heads, dim_k), dtype),
        dv: T.Tensor((batch, seqlen, heads, dim_v), dtype),
        products: T.Tensor((batch, seqlen, heads, dim_k), "float32"),
        scale: T.float32,
    ):
        with T.Kernel(nchunks * blocks, heads, batch, threads=threads) as (bx, head, b):
            v_tile = T.alloc_shared((block, block_v), dtype)
            do_tile = T.alloc_shared((chunk_size, block_v), dtype)
            state_tile = T.alloc_shared((block_v, depth), dtype)
            later = T.alloc_shared((chunk_size, depth), dtype)
            q_tile = T.alloc_shared((block, depth), dtype)
            k_tile = T.alloc_shared((block, depth), dtype)
            decayed = T.alloc_shared((block, depth), dtype)
            s = T.alloc_shared((block, depth), "float32")
            border = T.alloc_shared((depth,), "float32")
            last = T.alloc_shared((depth,), "float32")
            pairs = T.alloc_shared((block, chunk_size), "float32")
            weights = T.alloc_shared((block, chunk_size), dtype)
            dots = T.alloc_fragment((block, chunk_size), "float32")
            k_acc = T.alloc_fragment((block, depth), "float32")
            v_acc = T.alloc_fragment((block, block_v), "float32")
            own_acc = T.alloc_fragment((block, depth), "float32")
            channels = T.alloc_fragment((depth,), "float32")
            total = T.alloc_fragment((1,), "float32")

            chunk, row = bx // blocks, bx % blocks * block
            begin, end = tokens_of(chunks, chunk, chunk_size, seqlen, packed)
            token = begin + row
            if token < end:
                for c in T.Parallel(depth):
                    border[c] = T.if_then_else(c < dim_k, sums[b, T.min(token + block, end) - 1, head, c], 0.0)
                    last[c] = T.if_then_else(c < dim_k, sums[b, end - 1, head, c], 0.0)
                for j, c in T.Parallel(block, depth):
                    inside = token + j < end and c < dim_k
                    q_tile[j, c] = T.if_then_else(inside, q[b, token + j, head, c], 0.0)
                    k_tile[j, c] = T.if_then_else(inside, k[b, token + j, head, c], 0.0)
                    s[j, c] = T.if_then_else(inside, sums[b, token + j, head, c], border[c])
                if by_vectors:
                    T.clear(later)
                    for i in T.serial(row + block, T.min(chunk_size, end - begin)):
                        for c in T.Parallel(dim_k):
                            later[i, c] = q[b, begin + i, head, c] * T.exp(sums[b, begin + i, head, c] - border[c])
                else:
                    for i, c in T.Parallel(chunk_size, depth):
                        inside = i >= row + block and begin + i < end and c < dim_k
                        value = q[b, begin + i, head, c] * T.exp(sums[b, begin + i, head, c] - border[c])
                        later[i, c] = T.if_then_else(inside, value, 0.0)

                # A by pairs of tokens: with those behind the block, and within it.
                for j, c in T.Parallel(block, depth):
                    decayed[j, c] = k_tile[j, c] * T.exp(border[c] - s[j, c])
                T.gemm(decayed, later, dots, transpose_B=True, clear_accum=True)
                for j, i in T.Parallel(block, chunk_size):
                    weights[j, i] = dots[j, i] * scale
                if not by_vectors:
                    for j, i in T.Parallel(block, block):
                        dot = T.alloc_var("float32", init=0.0)
                        if j <= i:
                            for c in T.serial(depth):
                                pair = T.cast(q_tile[i, c], "float32") * k_tile[j, c]
                                dot += pair * T.exp(s[i, c] - s[j, c])
                        weights[j, row + i] = dot * scale

                for j, c in T.Parallel(block, depth):
                    decayed[j, c] = k_tile[j, c] * T.exp(last[c] - s[j, c])
                T.clear(k_acc)
                T.clear(dots)
                for n in T.serial(turns):
                    load(v_tile, v, b, token, end, head, n * block_v, dim_v)
                    load(do_tile, do, b, begin, end, head, n * block_v, dim_v)
                    load_state(state_tile, after, b, chunk, head, n * block_v, dim_v, dim_k)
                    T.gemm(v_tile, state_tile, k_acc)
                    T.gemm(v_tile, do_tile, dots, transpose_B=True)
                    if not by_vectors:
                        values(decayed, state_tile, weights, do_tile, v_acc, dv, (b, token, head, n, end))

                for j, i in T.Parallel(block, chunk_size):
                    pairs[j, i] = dots[j, i] * scale
                if by_vectors:
                    T.clear(own_acc)
                    for j in T.serial(block):
                        for i in T.serial(block):
                            weights[j, row + i] = 0.0
                        for i in T.serial(j, block):
                            for c in T.Parallel(depth):
                                decayed_q = T.cast(q_tile[i, c], "float32") * T.exp(s[i, c] - s[j, c])
                                channels[c] = decayed_q * k_tile[j, c]
                                own_acc[j, c] += decayed_q * pairs[j, row + i]
                            T.reduce_sum(channels, total, dim=0)
                            weights[j, row + i] = total[0] * scale
                    for n in T.serial(turns):
                        load(do_tile, do, b, begin, end, head, n * block_v, dim_v)
                        load_state(state_tile, after, b, chunk, head, n * block_v, dim_v, dim_k)
                        values(decayed, state_tile, weights, do_tile, v_acc, dv, (b, token, head, n, end))
                for j, i in T.Parallel(block, chunk_size):
                    weights[j, i] = T.if_then_else(i >= row + block, pairs[j, i], 0.0)
                for j, c in T.Parallel(block, depth):
                    k_acc[j, c] *= T.exp(last[c] - border[c])
                T.gemm(weights, later, k_acc)
                for j, c in T.Parallel(block, depth):
                    own = T.alloc_var("float32", init=0.0)
                    if by_vectors:
                        own = own_acc[j, c]
                    else:
                        for n in T.serial(block - j):
                            own += pairs[j, row + j + n] * q_tile[j + n, c] * T.exp(s[j + n, c] - s[j, c])
                    k_acc[j, c] = k_acc[j, c] * T.exp(border[c] - s[j, c]) + own
                for j, c in T.Parallel(block, depth):
                    if token + j < end and c < dim_k:
                        dk[b, token + j, head, c] = k_acc[j, c]
                        products[b, token + j, head, c] = k_acc[j, c] * k_tile[j, c]

    return keys_values_backward


def gates_backward(dtype, gate_dtype, chunk_size, dim_k, dim_v, block, block_v, threads, packed):
    """Gradients of the gates of a chunk, for `block` channels, from q dq, k dk and the states around the chunk."""
    batch, seqlen, heads, nchunks = T.dynamic("batch, seqlen, heads, nchunks")
    tiles, turns = -(-dim_k // block), -(-dim_v // block_v)

    @T.prim_func
    def gates_backward(
        q_products: T.Tensor((batch, seqlen, heads, dim_k), "float32"),
        k_products: T.Tensor((batch, seqlen, heads, dim_k), "float32"),
        sums: T.Tensor((batch, seqlen, heads, dim_k), "float32"),
        before: T.Tensor((batch, nchunks, heads, dim_v, dim_k), dtype),
        states: T.Tensor((batch, nchunks, heads, dim_v, dim_k), "float32"),
        after: T.Tensor((batch, nchunks, heads, dim_v, dim_k), dtype),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        dgate: T.Tensor((batch, seqlen, heads, dim_k), gate_dtype),
    ):
        with T.Kernel(nchunks * tiles, heads, batch, threads=threads) as (bx, head, b):
            tile = T.alloc_shared((chunk_size, block), "float32")
            decay = T.alloc_shared((block,), "float32")
            edge = T.alloc_shared((block,), "float32")
            products = T.alloc_fragment((block_v, block), "float32")
            total = T.alloc_fragment((block,), "float32")
            chunk, c0 = bx // tiles, bx % tiles * block
            begin, end = tokens_of(chunks, chunk, chunk_size, seqlen, packed)
            if begin < end:
                for c in T.Parallel(block):
                    decay[c] = T.if_then_else(c0 + c < dim_k, T.exp(sums[b, end - 1, head, c0 + c]), 0.0)
                T.clear(products)
                for n in T.serial(turns):
                    for r, c in T.Parallel(block_v, block):
                        row = n * block_v + r
                        state = decay[c] * before[b, chunk, head, row, c0 + c] + states[b, chunk, head, row, c0 + c]
                        product = after[b, chunk, head, row, c0 + c] * state
                        products[r, c] += T.if_then_else(row < dim_v and c0 + c < dim_k, product, 0.0)
                T.reduce_sum(products, total, dim=0)
                T.copy(total, edge)
                for t, c in T.Parallel(chunk_size, block):
                    inside = begin + t < end and c0 + c < dim_k
                    term = q_products[b, begin + t, head, c0 + c] - k_products[b, begin + t, head, c0 + c]
                    tile[t, c] = T.if_then_else(inside, term, 0.0)
                T.cumsum(tile, dim=0, reverse=True)
                for t, c in T.Parallel(chunk_size, block):
                    if begin + t < end and c0 + c < dim_k:
                        dgate[b, begin + t, head, c0 + c] = tile[t, c] + edge[c]

    return gates_backward
