"""Products of few tokens with packed weights on CPUs, in tile language: out = x @ W.T + offset, W[n, k] = (code - zero) * scale.

The lanes of a vector are neighbouring words of W, which are shifted down so that the code of one place comes to the lowest bits,
by which the number that it stands for is looked up. `pairs`: a word is two halves, each of which has a code there, and both are
looked up at once: a pair of bfloat16, which meets that of x in one instruction (VDPBF16PS). Numbers are never in memory.
Operands are those of `tile_ops.dequantize.kernels`; weights are words of 32 bits. Sums in float32. Extents are dynamic.
"""

import tilelang.language as T

#: The pair (1, 1).
ONES = 0x3F803F80


def vectors_of_x(dtype, bits, tokens, sums, pairs, lanes):
    """What `product` multiplies with, P[v, p, t, h, j]: x[t, k] of the code p of word j of the vector v. With `pairs` it is a
    pair, x[t, k] and x[t, k + half a word's codes]; of float16 the parts h, high and low, whose sum is x. S[v, t, j], if
    `sums`: the sum of x[t] over that word. Beyond x there are zeros."""
    per = 32 // bits
    places, parts = (per // 2, tuple(range(parts_of(dtype)))) if pairs else (per, (0,))
    m, length, vectors, vectors_of_sums = (T.dynamic(name) for name in ("m", "words", "vectors", "vectors_of_sums"))

    @T.prim_func
    def vectors_of_x(
        X: T.Tensor((m, length * per), dtype),
        P: T.Tensor((vectors, places, tokens, len(parts), lanes), "uint32" if pairs else "float32"),
        S: T.Tensor((vectors_of_sums, tokens, lanes), "float32"),
    ):
        with T.Kernel(vectors, tokens, threads=1) as (v, t):
            total = T.alloc_fragment((lanes,), "float32")
            T.clear(total)
            for p in T.serial(places):
                for j in T.Parallel(lanes):
                    k = (v * lanes + j) * per + p
                    if pairs:
                        low, high = (
                            T.if_then_else((t < m) & (at < length * per), X[t, at], T.cast(0, dtype))
                            for at in (k, k + places)
                        )
                        for h in parts:
                            low_part, high_part = T.cast(low, "bfloat16"), T.cast(high, "bfloat16")
                            pair = _bits(low_part) | (_bits(high_part) << T.uint32(16))
                            P[v, p, t, h, j] = pair
                            if sums:
                                total[j] = T.dot2(pair, T.uint32(ONES), total[j])
                            if len(parts) > 1:
                                low, high = _rest(low, low_part), _rest(high, high_part)
                    else:
                        value = T.if_then_else((t < m) & (k < length * per), T.cast(X[t, k], "float32"), T.float32(0))
                        P[v, p, t, 0, j] = value
                        if sums:
                            total[j] += value
            if sums:
                T.copy(total, S[v, t, 0:lanes])

    return vectors_of_x


def product(
    dtype,
    out_dtype,
    scale_dtype,
    bits,
    signed,
    group,
    zeros,
    table,
    tokens,
    block_N,
    block_W,
    pairs,
    looked_up,
    scaled,
    lanes,
):
    """`tokens` rows of x, as `vectors_of_x` has them, by `block_N` rows of W, `block_W` words a step. Codes of `looked_up`
    integers stand in a table, too; those of others are converted.

    W is read straight from memory in whole steps, which are inside of it by their count, each row while two before it are
    multiplied; what is left is copied.
    """
    per, ahead, vectors_of_step = 32 // bits, 2, block_W // lanes
    places, parts = (per // 2, tuple(range(parts_of(dtype)))) if pairs else (per, (0,))
    span = group // per if group else 0  # words of one group
    rows = max(1, block_W // span) if group else 1  # groups of a step
    m, n, length, groups = (T.dynamic(name) for name in ("m", "n", "words", "groups"))
    bias_n, vectors, vectors_of_sums = (T.dynamic(name) for name in ("bias_n", "vectors", "vectors_of_sums"))
    unused = [T.dynamic(name) for name in ("zero_groups", "zero_n", "codes")]
    those, all_places, middle = tuple(range(tokens)), tuple(range(places)), 2 ** (bits - 1) if signed else 0
    entries = 2**bits if pairs else 16  # that a look-up has in a register: all, or again and again
    weight_of, pair_of, held = (
        number_of_code(bits, signed, looked_up or scaled),
        pair_of_codes(bits),
        "uint32" if pairs else "float32",
    )

    @T.prim_func
    def product(
        P: T.Tensor((vectors, places, tokens, len(parts), lanes), held),
        S: T.Tensor((vectors_of_sums, tokens, lanes), "float32"),
        W: T.Tensor((n, length), "uint32"),
        scales: T.Tensor((groups, n), scale_dtype),
        zero_points: T.Tensor((groups, n) if zeros else (unused[0], unused[1]), "uint8"),
        values: T.Tensor((2**bits,) if table else (unused[2],), "float32"),
        offset: T.Tensor((bias_n,), dtype),
        out: T.Tensor((1, m, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, block_N), threads=1) as bn:
            x = T.alloc_fragment((vectors_of_step, places, tokens, len(parts), lanes), held)
            x_sum = T.alloc_fragment((vectors_of_step, tokens, lanes), "float32")
            packed = T.alloc_fragment((block_N, block_W), "uint32")
            number_of = T.alloc_shared((entries,), "uint16" if pairs else "float32")
            scaled_of = T.alloc_shared((entries,), "float32")
            numbers = T.alloc_shared((rows, block_N), "float32")
            scale_of = T.alloc_shared((block_N, rows), "float32")
            zero_of = T.alloc_shared((block_N, rows), "float32")
            sums = T.alloc_fragment((tokens, block_N, lanes), "float32")
            total = T.alloc_fragment((tokens, block_N), "float32")
            for c in T.serial(entries):
                code = c % 2**bits
                value = values[code] if table else T.cast((code ^ middle) - middle, "float32")
                number_of[c] = T.reinterpret(T.cast(value, "bfloat16"), "uint16") if pairs else value

            @T.macro
            def prepare(first):
                T.copy(P[first // lanes, 0, 0, 0, 0], x)
                row = first * per // group if group else 0
                beside_rows(scales, row, bn * block_N, numbers, scale_of)
                if zeros:
                    T.copy(S[first // lanes, 0, 0], x_sum)
                    beside_rows(zero_points, row, bn * block_N, numbers, zero_of)

            @T.macro
            def by_sums(i, word_at, count):
                """Sums of a vector's products are scaled."""
                for j in T.Parallel(lanes):
                    for v in T.serial(count):
                        at = v * lanes + j
                        word = word_at(at)
                        dots = [T.float32(0) for _ in those]
                        for p in all_places:
                            if pairs:
                                pair = pair_of(number_of, word, p)
                                for h in parts:
                                    dots = [T.dot2(pair, x[v, p, t, h, j], dots[t]) for t in those]
                            else:
                                weight = weight_of(number_of, word, p)
                                dots = [weight * x[v, p, t, 0, j] + dots[t] for t in those]
                        g = (v * lanes if span % lanes == 0 else at) // span if group else 0
                        for t in those:
                            dot = dots[t] - zero_of[i, g] * x_sum[v, t, j] if zeros else dots[t]
                            sums[t, i, j] += dot * scale_of[i, g]

            @T.macro
            def by_table(i, word_at, count):
                """The numbers of a table are scaled, for a vector's products."""
                for v in T.serial(count):
                    g = v * lanes // span
                    for c in T.Parallel(entries):
                        scaled_of[c] = (number_of[c] - zero_of[i, g] if zeros else number_of[c]) * scale_of[i, g]
                    for j in T.Parallel(lanes):
                        word = word_at(v * lanes + j)
                        dots = [sums[t, i, j] for t in those]
                        for p in all_places:
                            weight = weight_of(scaled_of, word, p)
                            dots = [weight * x[v, p, t, 0, j] + dots[t] for t in those]
                        for t in those:
                            sums[t, i, j] = dots[t]

            multiply = by_table if scaled else by_sums
            T.clear(sums)
            whole = length // block_W
            for step in T.serial(whole):
                first = step * block_W
                prepare(first)
                for i in T.serial(block_N):
                    row = bn * block_N + i
                    T.prefetch(W[row + ahead, first : first + block_W])
                    multiply(i, lambda at: W[row, first + at], vectors_of_step)
            rest = length - whole * block_W
            if rest > 0:
                prepare(whole * block_W)
                T.copy(W[bn * block_N, whole * block_W], packed)
                for i in T.serial(block_N):
                    multiply(i, lambda at: packed[i, at], T.min(T.ceildiv(rest, lanes), vectors_of_step))
            T.reduce_sum(sums, total, dim=2)
            if offset.shape[0] > 0:
                for t, i in T.Parallel(tokens, block_N):
                    total[t, i] += offset[bn * block_N + i]
            T.copy(total, out[0, 0, bn * block_N])

    return product


@T.macro
def beside_rows(given, group, row, lying, turned):
    """turned[i, g] = given[group + g, row + i]: scales, or zero points, of rows of W side by side; `lying` has them first."""
    T.copy(given[group : group + lying.shape[0], row : row + lying.shape[1]], lying)
    for i, g in T.Parallel(lying.shape[1], lying.shape[0]):
        turned[i, g] = lying[g, i]


def parts_of(dtype):
    """Numbers of bfloat16 whose sum is one of this type."""
    return 2 if dtype == "float16" else 1


def _rest(value, part):
    """What is left of a number without a part of it: nothing of an infinite one."""
    rest = T.cast(value, "float32") - T.cast(part, "float32")
    return T.if_then_else(rest == rest, rest, T.float32(0))


def _bits(value):
    """A number of bfloat16 as the low half of a word."""
    return T.cast(T.reinterpret(value, "uint16"), "uint32")


def number_of_code(bits, signed, looked_up):
    """`number(number_of, word, place)`: what a word's code stands for, float32. A table's 16 entries are looked up by four bits
    of the word, of which more than a code's do not count."""

    def number(number_of, word, place):
        if looked_up:
            return number_of[T.cast((word >> T.uint32(place * bits)) & T.uint32(15), "int32")]
        if signed:  # the highest bits of a word keep their sign as they are shifted down
            top = T.reinterpret(word << T.uint32(32 - bits - place * bits), "int32")
            return T.cast(top >> (32 - bits), "float32")
        return T.cast(T.cast((word >> T.uint32(place * bits)) & T.uint32(2**bits - 1), "int32"), "float32")

    return number


def pair_of_codes(bits):
    """`pair(number_of, word, place)`: what the codes of this place of either half of a word stand for, as a pair."""

    def number(number_of, word, place):
        code = (word >> T.uint32(place * bits)) & T.uint32(2**bits - 1)
        return T.cast(number_of[T.cast(code, "int32")], "uint32")

    def pair(number_of, word, place):
        return number(number_of, word, place) | (number(number_of, word, place + 16 // bits) << T.uint32(16))

    return pair
