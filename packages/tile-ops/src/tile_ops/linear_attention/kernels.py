"""Linear attention in tile language: S_t = decay_t S_{t-1} + v_t k_t^T, o_t = scale S_t q_t.

With one decay for a whole state it is Mamba-2's scan with steps of 1, so that only `decays` is its own; the products are
those of `state_space/kernels.py`. `gated` has a decay for each channel of the keys: Yang et al., Gated Linear Attention
Transformers with Hardware-Efficient Training, 2024, section 4, with the pairwise form on the diagonal.
"""

import tilelang.language as T

#: The least logarithm of a decay: what is below, -infinity too, leaves as little of a float32, nothing, and sums of
#: it keep the digits of those that follow.
LEAST = -128.0


def logarithm(decay):
    """Of a decay, not below LEAST; NaN stays NaN."""
    value = T.cast(decay, "float32")
    return T.if_then_else(value < LEAST, LEAST, value)


def decays(dtype, chunk_size, block_heads, per_token, packed):
    """Steps of 1 (0 past a sequence's end), and cumulative sums of the logarithms of the decays, by chunks.

    decay: (batch, seqlen, nheads), or (1, 1, nheads) for all tokens alike.
    """
    batch, seqlen, nheads, nchunks = T.dynamic("batch, seqlen, nheads, nchunks")

    @T.prim_func
    def decays(
        decay: T.Tensor((batch, seqlen, nheads) if per_token else (1, 1, nheads), dtype),
        chunks: T.Tensor((T.dynamic("rows"), 2), "int32"),
        step: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        sums: T.Tensor((batch, nheads, nchunks, chunk_size), "float32"),
        length: T.int32,
    ):
        with T.Kernel(nchunks, T.ceildiv(nheads, block_heads), batch, threads=128) as (chunk, by, b):
            steps = T.alloc_shared((block_heads, chunk_size), "float32")
            logs = T.alloc_shared((block_heads, chunk_size), "float32")
            head = by * block_heads
            begin = chunks[chunk, 0] if packed else chunk * chunk_size
            end = chunks[chunk, 1] if packed else T.min(chunk * chunk_size + chunk_size, length)
            for l, h in T.Parallel(chunk_size, block_heads):
                steps[h, l] = T.if_then_else(begin + l < end, 1.0, 0.0)
                value = decay[b, begin + l, head + h] if per_token else decay[0, 0, head + h]
                logs[h, l] = T.if_then_else(begin + l < end, logarithm(value), 0.0)
            T.cumsum(logs, dim=1)
            T.copy(steps, step[b, head : head + block_heads, chunk, :])
            T.copy(logs, sums[b, head : head + block_heads, chunk, :])

    return decays


def gated(dtype, gate_dtype, dim_k, dim_v, block_v, block, threads, initial, packed, by_vectors):
    """A block takes `block_v` channels of the values of one sequence and head through all tokens, `block` at a time.

    With G the cumulative sum of the gates in the block of tokens, o = (q exp(G)) S + A v, where A[i, j] is the sum over
    channels of q_i k_j exp(G_i - G_j) for j <= i: no exponent is positive, whatever the gates. `by_vectors`, for a CPU: the
    channels of two tokens are vectors; on a GPU each thread sums those of its own two.
    """
    batch, seqlen, heads, sequences = T.dynamic("batch, seqlen, heads, sequences")
    depth, width = -(-dim_k // 16) * 16, -(-dim_v // block_v) * block_v

    @T.prim_func
    def gated(
        q: T.Tensor((batch, seqlen, heads, dim_k), dtype),
        k: T.Tensor((batch, seqlen, heads, dim_k), dtype),
        v: T.Tensor((batch, seqlen, heads, dim_v), dtype),
        gate: T.Tensor((batch, seqlen, heads, dim_k), gate_dtype),
        start: T.Tensor((T.dynamic("starts"), heads, dim_v, dim_k), "float32"),
        cu_seqlens: T.Tensor((T.dynamic("bounds"),), "int32"),
        out: T.Tensor((batch, seqlen, heads, dim_v), dtype),
        final: T.Tensor((sequences, heads, dim_v, dim_k), "float32"),
        scale: T.float32,
    ):
        with T.Kernel(width // block_v, heads, sequences, threads=threads) as (bx, head, sequence):
            q_tile = T.alloc_shared((block, depth), dtype)
            k_tile = T.alloc_shared((block, depth), dtype)
            v_tile = T.alloc_shared((block, block_v), dtype)
            sums = T.alloc_shared((block, depth), "float32")
            decayed_q = T.alloc_shared((block, depth), dtype)
            decayed_k = T.alloc_shared((block, depth), dtype)
            scores = T.alloc_shared((block, block), dtype)
            state_tile = T.alloc_shared((block_v, depth), dtype)
            state = T.alloc_fragment((block_v, depth), "float32")
            acc = T.alloc_fragment((block, block_v), "float32")
            channels = T.alloc_fragment((depth,), "float32")
            total = T.alloc_fragment((1,), "float32")

            b = 0 if packed else sequence
            begin = cu_seqlens[sequence] if packed else 0
            end = cu_seqlens[sequence + 1] if packed else seqlen
            for i, c in T.Parallel(block_v, depth):
                if initial:
                    inside = bx * block_v + i < dim_v and c < dim_k
                    state[i, c] = T.if_then_else(inside, start[sequence, head, bx * block_v + i, c], 0.0)
                else:
                    state[i, c] = 0.0
            T.copy(state, state_tile)
            for step in T.serial(T.ceildiv(end - begin, block)):
                token = begin + step * block
                for i, c in T.Parallel(block, depth):
                    inside = token + i < end and c < dim_k
                    q_tile[i, c] = T.if_then_else(inside, q[b, token + i, head, c], 0.0)
                    k_tile[i, c] = T.if_then_else(inside, k[b, token + i, head, c], 0.0)
                    sums[i, c] = T.if_then_else(inside, logarithm(gate[b, token + i, head, c]), 0.0)
                for i, j in T.Parallel(block, block_v):
                    inside = token + i < end and bx * block_v + j < dim_v
                    v_tile[i, j] = T.if_then_else(inside, v[b, token + i, head, bx * block_v + j], 0.0)
                T.cumsum(sums, dim=0)
                for i, c in T.Parallel(block, depth):
                    decayed_q[i, c] = q_tile[i, c] * T.exp(sums[i, c])
                    decayed_k[i, c] = k_tile[i, c] * T.exp(sums[block - 1, c] - sums[i, c])
                if by_vectors:
                    for i, j in T.Parallel(block, block):
                        scores[i, j] = 0.0
                    for i in T.serial(block):
                        for j in T.serial(i + 1):
                            for c in T.Parallel(depth):
                                pair = T.cast(q_tile[i, c], "float32") * k_tile[j, c]
                                channels[c] = pair * T.exp(sums[i, c] - sums[j, c])
                            T.reduce_sum(channels, total, dim=0)
                            scores[i, j] = total[0]
                else:
                    for i, j in T.Parallel(block, block):
                        dot = T.alloc_var("float32", init=0.0)
                        if j <= i:
                            for c in T.serial(depth):
                                pair = T.cast(q_tile[i, c], "float32") * k_tile[j, c]
                                dot += pair * T.exp(sums[i, c] - sums[j, c])
                        scores[i, j] = dot
                T.gemm(decayed_q, state_tile, acc, transpose_B=True, clear_accum=True)
                T.gemm(scores, v_tile, acc)
                for i, j in T.Parallel(block, block_v):
                    if token + i < end and bx * block_v + j < dim_v:
                        out[b, token + i, head, bx * block_v + j] = acc[i, j] * scale
                for i, c in T.Parallel(block_v, depth):
                    state[i, c] *= T.exp(sums[block - 1, c])
                T.gemm(v_tile, decayed_k, state, transpose_A=True)
                T.copy(state, state_tile)
            for i, c in T.Parallel(block_v, depth):
                if bx * block_v + i < dim_v and c < dim_k:
                    final[sequence, head, bx * block_v + i, c] = state[i, c]

    return gated
