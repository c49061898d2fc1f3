"""Products with packed weights on CPUs in tile language: out = x @ W.T + offset, W[n, k] = (code - zero) * scale.

Operands are those of `tile_ops.dequantize.kernels`; weights are words of 32 bits. Sums in float32. Extents are dynamic.
"""

import tilelang.language as T
from tile_ops.dequantize_vectors.kernels import beside_rows, number_of_code


@T.macro
def _add(total, offset, column):
    """The bias, if there is one, by itself: results without are a copy."""
    if offset.shape[0] > 0:
        for i, j in T.Parallel(total.shape[0], total.shape[1]):
            total[i, j] += offset[column + j]


@T.macro
def _over_rows(W, row, first, packed, halves, body):
    """`body(i, word_at)` for each row i of the tile of W from (row, first) on, as large as `packed`, the words of which, or the
    `halves` of those, are `word_at(0)` and so on. They are read where they lie, while those of the next step are fetched; of a
    tile that is not all there a copy has zeros."""
    rows, words = packed.shape
    each, lying, copied = 1, W, packed
    if halves:
        each = 2
        lying = T.view(W, (W.shape[0], 2 * W.shape[1]), "uint16")
        copied = T.view(packed, (rows, 2 * words), "uint16")
    if (row + rows <= W.shape[0]) & (first + words <= W.shape[1]):
        for i in T.serial(rows):
            T.prefetch(W[row + i, first + words : first + 2 * words])
            body(i, lambda at: lying[row + i, first * each + at])
    else:
        T.copy(W[row, first], packed)
        for i in T.serial(rows):
            body(i, lambda at: copied[i, at])


def columns(dtype, per, block_M, block_W):
    """Y = the columns of x as rows, float32, in the order in which `product_float32` decodes W: of each `block_W` words the
    first codes, then the second ones, and so on. Beyond x there are zeros."""
    m, length, steps = (T.dynamic(name) for name in ("m", "words", "steps"))

    @T.prim_func
    def columns(X: T.Tensor((m, length * per), dtype), Y: T.Tensor((steps, per, block_W, m), "float32")):
        with T.Kernel(steps, T.ceildiv(m, block_M), threads=1) as (step, bm):
            for c, w, t in T.Parallel(per, block_W, block_M):
                at = bm * block_M + t
                if at < m:
                    Y[step, c, w, at] = T.cast(X[at, (step * block_W + w) * per + c], "float32")

    return columns


def product_float32(dtype, out_dtype, scale_dtype, bits, signed, group, zeros, table, block_M, block_N, block_W, lanes):
    """For a CPU: `block_W` words of `block_N` rows of W are decoded to float32 once for `block_M` tokens.

    X is what `columns` makes of x. W is the left operand, of which the kernel of a product broadcasts single elements, and X
    the right one, whose tokens are neighbours: neither is packed anew.
    """
    per = 32 // bits
    span = min(group // per, block_W) if group else block_W  # words of a step that have one scale
    m, n, length, steps, groups = (T.dynamic(name) for name in ("m", "n", "words", "steps", "groups"))
    bias_n, *unused = (T.dynamic(name) for name in ("bias_n", "zero_groups", "zero_n", "codes"))
    number = number_of_code(bits, signed, table)
    places, parts = tuple(range(per)), block_W // span  # groups of a step

    @T.prim_func
    def product_float32(
        X: T.Tensor((steps, per * block_W, m), "float32"),
        W: T.Tensor((n, length), "uint32"),
        scales: T.Tensor((groups, n), scale_dtype),
        zero_points: T.Tensor((groups, n) if zeros else (unused[0], unused[1]), "uint8"),
        values: T.Tensor((2**bits,) if table else (unused[2],), "float32"),
        offset: T.Tensor((bias_n,), dtype),
        out: T.Tensor((1, m, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, block_N), T.ceildiv(m, block_M), threads=1) as (bn, bm):
            x = T.alloc_shared((per * block_W, block_M), "float32")
            decoded = T.alloc_shared((block_N, per * block_W), "float32")
            packed = T.alloc_fragment((block_N, block_W), "uint32")
            numbers = T.alloc_shared((parts, block_N), "float32")
            scale_of = T.alloc_shared((block_N, parts), "float32")
            less = T.alloc_shared((block_N, parts), "float32")
            acc = T.alloc_fragment((block_N, block_M), "float32")
            if table:
                value_of = T.alloc_shared((2**bits,), "float32")
                T.copy(values, value_of)

            T.clear(acc)
            for step in T.serial(steps):
                T.copy(X[step, 0, bm * block_M], x)
                T.copy(W[bn * block_N, step * block_W], packed)
                row = step * block_W * per // group if group else 0
                beside_rows(scales, row, bn * block_N, numbers, scale_of)
                if zeros:
                    beside_rows(zero_points, row, bn * block_N, numbers, less)
                    for i, r in T.Parallel(block_N, parts):
                        less[i, r] *= scale_of[i, r]
                for i, v, j in T.Parallel(block_N, block_W // lanes, lanes):
                    at = v * lanes + j
                    part = (v * lanes if span % lanes == 0 else at) // span
                    for c in places:
                        weight = number(value_of if table else None, packed[i, at], c) * scale_of[i, part]
                        decoded[i, c * block_W + at] = weight - less[i, part] if zeros else weight
                T.gemm(decoded, x, acc)
            total = T.alloc_fragment((block_M, block_N), "float32")
            for i, j in T.Parallel(block_M, block_N):
                total[i, j] = acc[j, i]
            _add(total, offset, bn * block_N)
            T.copy(total, out[0, bm * block_M, bn * block_N])

    return product_float32


def columns_of_pairs(per, span, block_M):
    """The columns of x as rows of bfloat16, in the order in which `product_pairs` decodes W, and their sums S for each of its
    groups of `span` words, float32. Numbers of x are sums of two bfloat16, high and low, which stand side by side as two
    tokens. Beyond x there are zeros."""
    half = per // 2
    m, length, rows, blocks = (T.dynamic(name) for name in ("m", "words", "rows", "blocks"))

    @T.prim_func
    def columns_of_pairs(
        X: T.Tensor((m, length * per), "float16"),
        Y: T.Tensor((rows, half, span, 2, blocks, 2, block_M), "bfloat16"),
        S: T.Tensor((rows, blocks, block_M), "float32"),
    ):
        with T.Kernel(rows, blocks, threads=1) as (row, bm):
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for p, w, h in T.grid(half, span, 2):
                for t in T.Parallel(block_M):
                    at, k = bm * block_M + t, (row * span + w) * per + p + h * half
                    value = T.if_then_else((at < m) & (k < length * per), T.cast(X[at, k], "float32"), T.float32(0))
                    high = T.cast(value, "bfloat16")
                    Y[row, p, w, h, bm, 0, t] = high
                    Y[row, p, w, h, bm, 1, t] = T.cast(value - T.cast(high, "float32"), "bfloat16")
                    total[t] += value
            T.copy(total, S[row, bm, 0:block_M])

    return columns_of_pairs


def product_pairs(dtype, out_dtype, scale_dtype, bits, signed, group, zeros, table, block_M, block_N, block_W, span):
    """For a CPU that multiplies pairs of bfloat16: the codes of `block_W` words of `block_N` rows of W as such pairs, for
    `block_M` tokens at a time.

    A code stands in the highest bits of the mantissa of 2^bits, where it counts as itself, so that a mask and the exponent's
    bits make two of them: code p of a word and code p + per / 2, which lies 16 bits higher. Products of such numbers are exact.
    The sum of a group of `span` words is scaled, less what the exponent and the zero point add to each number, times the sum
    S of x. Codes of a table are looked up; bfloat16 holds what they stand for.
    """
    per = 32 // bits
    half, parts, depth, lanes = per // 2, block_W // span, span * per, min(16, span)
    m, n, length, rows, blocks, groups = (T.dynamic(name) for name in ("m", "n", "words", "rows", "blocks", "groups"))
    bias_n, *unused = (T.dynamic(name) for name in ("bias_n", "zero_groups", "zero_n", "codes"))
    places, width = tuple(range(half)), 2 * block_M
    middle, mantissa = 2 ** (bits - 1) if signed else 0, 7 - bits  # of two's complement; where a code begins
    mask, beside = (2**bits - 1) << mantissa, (127 + bits << 7) ^ (middle << mantissa)
    offset = 2**bits + middle

    def moved(word, place):
        """The word with the code of this place, of either half, in the highest bits of a mantissa."""
        by = place * bits - mantissa
        return word >> T.uint32(by) if by > 0 else word << T.uint32(-by)

    @T.prim_func
    def product_pairs(
        X: T.Tensor((rows, depth, blocks * width), "bfloat16"),
        S: T.Tensor((rows, blocks, block_M), "float32"),
        W: T.Tensor((n, length), "uint32"),
        scales: T.Tensor((groups, n), scale_dtype),
        zero_points: T.Tensor((groups, n) if zeros else (unused[0], unused[1]), "uint8"),
        values: T.Tensor((2**bits,) if table else (unused[2],), "float32"),
        added: T.Tensor((bias_n,), dtype),
        out: T.Tensor((1, m, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, block_N), blocks, threads=1) as (bn, bm):
            words = T.alloc_shared((block_N, parts * depth // 2), "uint32")
            decoded = T.view(words, (block_N, parts * depth), "bfloat16")
            packed = T.alloc_fragment((block_N, block_W), "uint32")
            numbers = T.alloc_shared((parts, block_N), "float32")
            scale_of = T.alloc_shared((block_N, parts), "float32")
            less = T.alloc_shared((block_N, parts), "float32")
            sums = T.alloc_fragment((block_N, width), "float32")
            acc = T.alloc_fragment((block_N, block_M), "float32")
            if table:
                low_of, high_of = (T.alloc_shared((2**bits,), "uint32") for _ in "lh")
                for code in T.serial(2**bits):
                    low_of[code] = T.cast(T.reinterpret(T.cast(values[code], "bfloat16"), "uint16"), "uint32")
                    high_of[code] = low_of[code] << T.uint32(16)

            @T.macro
            def decode_row(i, word_at):
                for part, v, j in T.Parallel(parts, span // lanes, lanes):
                    word = word_at(part * span + v * lanes + j)
                    for p in places:
                        if table:
                            low, high = (
                                word >> T.uint32(bit) & T.uint32(2**bits - 1) for bit in (p * bits, p * bits + 16)
                            )
                            pair = low_of[T.cast(low, "int32")] | high_of[T.cast(high, "int32")]
                        else:
                            pair = (moved(word, p) & T.uint32(mask * 0x10001)) ^ T.uint32(beside * 0x10001)
                        words[i, (part * half + p) * span + v * lanes + j] = pair

            T.clear(acc)
            for step in T.serial(T.ceildiv(length, block_W)):
                row = step * block_W * per // group if group else 0
                beside_rows(scales, row, bn * block_N, numbers, scale_of)
                if zeros:
                    beside_rows(zero_points, row, bn * block_N, numbers, less)
                if not table:
                    for i, r in T.Parallel(block_N, parts):
                        less[i, r] = ((less[i, r] if zeros else 0) + offset) * scale_of[i, r]
                _over_rows(W, bn * block_N, step * block_W, packed, False, decode_row)
                for part in T.serial(parts):
                    at = step * parts + part
                    T.gemm(
                        decoded[0:block_N, part * depth : (part + 1) * depth],
                        X[at, 0:depth, bm * width : (bm + 1) * width],
                        sums,
                        clear_accum=True,
                    )
                    for i, t in T.Parallel(block_N, block_M):
                        y = (sums[i, t] + sums[i, block_M + t]) * scale_of[i, part]
                        acc[i, t] += y if table else y - less[i, part] * S[at, bm, t]
            total = T.alloc_fragment((block_M, block_N), "float32")
            for i, j in T.Parallel(block_M, block_N):
                total[i, j] = acc[j, i]
            _add(total, added, bn * block_N)
            T.copy(total, out[0, bm * block_M, bn * block_N])

    return product_pairs


def _unpacking(dtype, bits, signed, zeros, table, span, halves):
    """Macros: `values_of(value_of, values)`, the number of each code; `unpack(word_at, decoded, i, first, value_of, number_of,
    zero, scale)`, `span` words from `first` on, which are row i of `decoded`. The 2^bits numbers that a group's codes stand for
    are made once. `halves`: these are of x's type already, and the codes of 16 bits of W are looked up as they are."""
    per, middle = 32 // bits, 2 ** (bits - 1) if signed else 0
    both = 2 if per < 16 and span % 2 == 0 else 1  # words whose codes are the lanes of a vector
    word, lanes, words = ("uint16", 32, 2 * bits) if halves else ("uint32", both * per, both)
    each = lanes // words

    @T.macro
    def values_of(value_of, values):
        if table:
            T.copy(values, value_of)
        else:
            for c in T.Parallel(2**bits):
                value_of[c] = T.cast((c ^ middle) - middle, "float32")

    @T.macro
    def unpack(word_at, decoded, i, first, value_of, number_of, zero, scale):
        for c in T.Parallel(2**bits):
            number_of[c] = ((value_of[c] - zero) if zeros else value_of[c]) * scale
        for v, j in T.Parallel(span * per // lanes, lanes):
            at = first * (per // each) + v * words + j // each
            code = (word_at(at) >> T.cast(j % each * bits, word)) & T.cast(2**bits - 1, word)
            decoded[i, first * per + v * lanes + j] = number_of[T.cast(code, "int32")]

    return values_of, unpack


def product_rounded(
    dtype, out_dtype, scale_dtype, bits, signed, group, zeros, table, columns, rows, block_N, block_W, halves
):
    """For a CPU: `block_W` words of `block_N` rows of W are decoded to x's type once for `columns` tokens, which are columns of
    a product by rows of W, read from where they lie, and `rows` more, which are rows of scalar products with those of W."""
    per = 32 // bits
    span = min(group // per, block_W) if group else block_W  # words of a step that have one scale
    parts, depth, block_M = block_W // span, block_W * per, columns + rows
    m, n, length, groups = (T.dynamic(name) for name in ("m", "n", "words", "groups"))
    bias_n, *unused = (T.dynamic(name) for name in ("bias_n", "zero_groups", "zero_n", "codes"))
    values_of, unpack = _unpacking(dtype, bits, signed, zeros, table, span, halves)

    @T.macro
    def store(total, offset, out, token, row):
        _add(total, offset, row)
        T.copy(total, out[0, token, row])

    @T.prim_func
    def product_rounded(
        X: T.Tensor((m, length * per), dtype),
        W: T.Tensor((n, length), "uint32"),
        scales: T.Tensor((groups, n), scale_dtype),
        zero_points: T.Tensor((groups, n) if zeros else (unused[0], unused[1]), "uint8"),
        values: T.Tensor((2**bits,) if table else (unused[2],), "float32"),
        offset: T.Tensor((bias_n,), dtype),
        out: T.Tensor((1, m, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, block_N), T.ceildiv(m, block_M), threads=1) as (bn, bm):
            decoded = T.alloc_shared((block_N, depth), dtype)
            packed = T.alloc_fragment((block_N, block_W), "uint32")
            value_of = T.alloc_shared((2**bits,), "float32")
            number_of = T.alloc_shared((2**bits,), dtype if halves else "float32")
            numbers = T.alloc_shared((parts, block_N), "float32")
            scale_of = T.alloc_shared((block_N, parts), "float32")
            zero_of = T.alloc_shared((block_N, parts), "float32")
            token, row = bm * block_M, bn * block_N
            if columns:
                turned = T.alloc_fragment((block_N, columns), "float32")
                T.clear(turned)
            if rows:
                x = T.alloc_shared((rows, depth), dtype)
                rest = T.alloc_fragment((rows, block_N), "float32")
                T.clear(rest)

            @T.macro
            def decode_row(i, word_at):
                for part in T.serial(parts):
                    unpack(word_at, decoded, i, part * span, value_of, number_of, zero_of[i, part], scale_of[i, part])

            values_of(value_of, values)
            for step in T.serial(T.ceildiv(length, block_W)):
                first_group = step * block_W * per // group if group else 0
                beside_rows(scales, first_group, row, numbers, scale_of)
                if zeros:
                    beside_rows(zero_points, first_group, row, numbers, zero_of)
                _over_rows(W, row, step * block_W, packed, halves, decode_row)
                first = step * depth
                T.assume(first >= 0)
                if columns:
                    some = X[token : token + columns, first : first + depth]
                    T.gemm(decoded, some, turned, transpose_B=True)
                if rows:
                    T.copy(X[token + columns, first], x)
                    T.gemm(x, decoded, rest, transpose_B=True)
            if columns:
                total = T.alloc_fragment((columns, block_N), "float32")
                for i, j in T.Parallel(columns, block_N):
                    total[i, j] = turned[j, i]
                store(total, offset, out, token, row)
            if rows:
                store(rest, offset, out, token + columns, row)

    return product_rounded


def product_split(
    dtype, out_dtype, scale_dtype, bits, signed, group, zeros, table, columns, block_N, block_W, pad, piece=64
):
    """For a CPU whose tile registers multiply bfloat16, and x in float16: `block_W` words of `block_N` rows of W are decoded, for
    `columns` tokens, as sums of two of bfloat16, `high` and `low`, to 2^-17 of a weight.

    X is what `tile_ops.gemm_pairs.kernels.split` makes of x for `block_W` words at a time. As there, the result is the sum of
    high * high and of the mixed products, or the former where that is not finite.
    """
    per = 32 // bits
    span = min(group // per, block_W) if group else block_W  # words of a step that have one scale
    parts, depth = block_W // span, block_W * per
    m, n, length, groups = (T.dynamic(name) for name in ("m", "n", "words", "groups"))
    bias_n, *unused = (T.dynamic(name) for name in ("bias_n", "zero_groups", "zero_n", "codes"))
    middle, lanes, words = (
        2 ** (bits - 1) if signed else 0,
        32,
        2 * bits,
    )  # of 16 bits, whose codes are the lanes of a vector
    each = lanes // words

    @T.prim_func
    def product_split(
        X: T.Tensor((1, T.dynamic("steps"), T.dynamic("rows"), 2 * depth + pad), "bfloat16"),
        W: T.Tensor((n, length), "uint32"),
        scales: T.Tensor((groups, n), scale_dtype),
        zero_points: T.Tensor((groups, n) if zeros else (unused[0], unused[1]), "uint8"),
        values: T.Tensor((2**bits,) if table else (unused[2],), "float32"),
        offset: T.Tensor((bias_n,), dtype),
        out: T.Tensor((1, m, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, block_N), T.ceildiv(m, columns), threads=1) as (bn, bm):
            decoded = T.alloc_shared((block_N, 2 * depth), "bfloat16")  # the low parts, and behind them the high ones
            packed = T.alloc_fragment((block_N, block_W), "uint32")
            value_of = T.alloc_shared((2**bits,), "float32")
            high_of, low_of = (T.alloc_shared((2**bits,), "bfloat16") for _ in "hl")
            numbers = T.alloc_shared((parts, block_N), "float32")
            scale_of = T.alloc_shared((block_N, parts), "float32")
            zero_of = T.alloc_shared((block_N, parts), "float32")
            exact = T.alloc_fragment((block_N, columns), "float32")
            mixed = T.alloc_fragment((block_N, columns), "float32")
            turned = T.alloc_shared((columns, piece + 16), "float32")  # rows a power of two apart would share lines
            total = turned[0:columns, 0:piece]
            token, row = bm * columns, bn * block_N

            @T.macro
            def decode_row(i, word_at):
                for part in T.serial(parts):
                    for c in T.Parallel(2**bits):
                        number = ((value_of[c] - zero_of[i, part]) if zeros else value_of[c]) * scale_of[i, part]
                        high = T.cast(number, "bfloat16")
                        high_of[c] = high
                        low_of[c] = T.cast(number - T.cast(high, "float32"), "bfloat16")
                    first = part * span
                    for v, j in T.Parallel(span * per // lanes, lanes):
                        at = first * 2 + v * words + j // each
                        code = (word_at(at) >> T.cast(j % each * bits, "uint16")) & T.cast(2**bits - 1, "uint16")
                        decoded[i, first * per + v * lanes + j] = low_of[T.cast(code, "int32")]
                        decoded[i, depth + first * per + v * lanes + j] = high_of[T.cast(code, "int32")]

            if table:
                T.copy(values, value_of)
            else:
                for c in T.Parallel(2**bits):
                    value_of[c] = T.cast((c ^ middle) - middle, "float32")
            for step in T.serial(X.shape[1]):
                first_group = step * depth // group if group else 0
                beside_rows(scales, first_group, row, numbers, scale_of)
                if zeros:
                    beside_rows(zero_points, first_group, row, numbers, zero_of)
                _over_rows(W, row, step * block_W, packed, True, decode_row)
                T.gemm(
                    decoded[0:block_N, depth : 2 * depth],
                    X[0, step, token : token + columns, 0:depth],
                    exact,
                    transpose_B=True,
                    clear_accum=step == 0,
                )
                T.gemm(
                    decoded,
                    X[0, step, token : token + columns, 0 : 2 * depth],
                    mixed,
                    transpose_B=True,
                    clear_accum=step == 0,
                )
            for part in T.serial(T.ceildiv(T.min(block_N, n - row), piece)):
                for i, j in T.Parallel(columns, piece):
                    one, other = exact[part * piece + j, i], mixed[part * piece + j, i]
                    turned[i, j] = T.if_then_else(T.isfinite(one), one + other, one)
                _add(total, offset, row + part * piece)
                T.copy(total, out[0, token, row + part * piece])

    return product_split


def decode(dtype, scale_dtype, bits, signed, group, zeros, table, block_W, halves):
    """weights[i] = W[first + i]: rows of W as numbers, for so many tokens that decoding is little beside the product."""
    per = 32 // bits
    span = min(group // per, block_W) if group else block_W  # words that have one scale
    n, panel, length, groups = (T.dynamic(name) for name in ("n", "panel", "words", "groups"))
    unused = [T.dynamic(name) for name in ("zero_groups", "zero_n", "codes")]
    values_of, unpack = _unpacking(dtype, bits, signed, zeros, table, span, halves)

    @T.prim_func
    def decode(
        W: T.Tensor((n, length), "uint32"),
        scales: T.Tensor((groups, n), scale_dtype),
        zero_points: T.Tensor((groups, n) if zeros else (unused[0], unused[1]), "uint8"),
        values: T.Tensor((2**bits,) if table else (unused[2],), "float32"),
        weights: T.Tensor((panel, length * per), dtype),
        first: T.int32,
    ):
        with T.Kernel(panel, threads=1) as row:
            packed = T.alloc_fragment((1, block_W), "uint32")
            decoded = T.alloc_fragment((1, block_W * per), dtype)
            codes = T.view(packed, (1, 2 * block_W), "uint16") if halves else packed
            value_of = T.alloc_shared((2**bits,), "float32")
            number_of = T.alloc_shared((2**bits,), dtype if halves else "float32")
            scale, zero = T.alloc_var("float32", init=0.0), T.alloc_var("float32", init=0.0)
            values_of(value_of, values)
            for step in T.serial(T.ceildiv(length, block_W)):
                T.copy(W[first + row, step * block_W], packed)
                for part in T.serial(block_W // span):
                    of_group = (step * block_W + part * span) * per // group if group else 0
                    scale = scales[of_group, first + row]
                    if zeros:
                        zero = zero_points[of_group, first + row]
                    unpack(lambda at: codes[0, at], decoded, 0, part * span, value_of, number_of, zero, scale)
                T.copy(decoded, weights[row, step * block_W * per])

    return decode
