"""Products with packed weights in tile language: out = x @ W.T, W[n, k] = (code - zero) * scale.

x: (m, k) float16 or bfloat16; weights: (n, k / per), `per` codes in a byte or in a uint32 word, low bits first; scales:
(groups, n), one for `group` neighbours of a row (0: for the whole row); zeros: (groups, n) uint8, used with `zeros`; table:
values of the codes, used with `table`; out: (splits, m, n), each split the sum over its share of k. Sums in float32.
Extents are dynamic. A tensor that a flag switches off is not read. offset, the bias: (n,), or no element where there is none,
so that one kernel serves layers with and without.
"""

import struct

import tilelang.language as T

VECTOR = 4  # words that one load of 16 bytes brings


def product(
    *,
    dtype,
    out_dtype,
    scale_dtype,
    bits,
    signed,
    group,
    zeros,
    table,
    block_M,
    block_N,
    block_K,
    stages,
    threads,
    copies,
    dealt,
):
    """On matrix instructions: weights are decoded in the registers where these want them, x stays as it is.

    copies: of a table of all pairs of codes, for tables of four bits; 0 for a table of single codes. dealt: X is what `deal`
    makes of x, so that a thread finds eight codes of its own in a word; for codes of four bits without a table. W then has
    words of type uint32.
    """
    per = 32 // bits if dealt else 8 // bits
    rows = max(1, block_K // group) if group else 1
    m, n, row_words, groups, splits = (T.dynamic(name) for name in ("m", "n", "row_words", "groups", "splits"))
    bias_n, *unused = (T.dynamic(name) for name in ("bias_n", "zero_groups", "zero_n", "codes"))
    k = row_words * per
    decode, decode_word = _pairs(dtype, bits, signed, table), _pairs_of_word(dtype, signed)
    held = "uint32" if dealt else "uint8"

    @T.prim_func
    def product(
        X: T.Tensor((m, k), dtype),
        W: T.Tensor((n, row_words), held),
        scales: T.Tensor((groups, n), scale_dtype),
        zero_points: T.Tensor((groups, n) if zeros else (unused[0], unused[1]), "uint8"),
        values: T.Tensor((2**bits,) if table else (unused[2],), "float32"),
        offset: T.Tensor((bias_n,), dtype),
        out: T.Tensor((splits, m, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, block_N), T.ceildiv(m, block_M), splits, threads=threads) as (bn, bm, split):
            x_tile = T.alloc_shared((block_M, block_K), dtype)
            packed = T.alloc_shared((block_N, block_K // per), held)
            scale_tile = T.alloc_shared((rows, block_N), scale_dtype)
            decoded = T.alloc_fragment((block_N, block_K), dtype)
            acc = T.alloc_fragment((block_N, block_M), "float32")
            if zeros:
                zero_tile = T.alloc_shared((rows, block_N), "uint8")
            if table and copies:
                # A thread reads its own copy: other banks of shared memory than its 31 neighbours, whatever the codes.
                pair_of = T.alloc_shared((4**bits, copies), "uint32")
                for codes, c in T.Parallel(4**bits, copies):
                    low = T.reinterpret(T.cast(values[codes % 2**bits], dtype), "uint16")
                    high = T.reinterpret(T.cast(values[codes // 2**bits], dtype), "uint16")
                    pair_of[codes, c] = T.cast(low, "uint32") | (T.cast(high, "uint32") << T.uint32(16))
            elif table:
                value_of = T.alloc_shared((2**bits,), dtype)
                T.copy(values, value_of)
            if not group:
                T.copy(scales[0:1, bn * block_N : (bn + 1) * block_N], scale_tile)
                if zeros:
                    T.copy(zero_points[0:1, bn * block_N : (bn + 1) * block_N], zero_tile)

            T.clear(acc)
            # 0, which only the run tells: with it the mask of a pair stays in a register, where the device's compiler would
            # copy a constant for each pair (LOP3 takes one constant, the exponent).
            nothing = T.cast(splits >> 31, "uint32")
            share = T.ceildiv(T.ceildiv(k, block_K), splits)  # of the steps; beyond the last one x reads 0
            for step in T.Pipelined(share, num_stages=stages):
                at = split * share + step
                T.copy(X[bm * block_M, at * block_K], x_tile)
                T.copy(W[bn * block_N, at * (block_K // per)], packed)
                if group:
                    row = at * block_K // group
                    T.copy(scales[row : row + rows, bn * block_N : (bn + 1) * block_N], scale_tile)
                    if zeros:
                        T.copy(zero_points[row : row + rows, bn * block_N : (bn + 1) * block_N], zero_tile)
                if dealt:
                    # Lane t of four, which holds columns 2t, 2t + 1, 2t + 8, ... of a group of 32, finds them in word t.
                    for i, g, t in T.Parallel(block_N, block_K // 32, 4):
                        scale = T.cast(scale_tile[32 * g // group if rows > 1 else 0, i], dtype)
                        zero = zero_tile[32 * g // group if rows > 1 else 0, i] if zeros else 0
                        for half in T.unroll(2):
                            word = packed[i, 4 * g + t] >> T.cast(8 * half, "uint32")
                            low, high, next_low, next_high = decode_word(word, zero, nothing)
                            decoded[i, 32 * g + 16 * half + 2 * t] = low * scale
                            decoded[i, 32 * g + 16 * half + 2 * t + 1] = high * scale
                            decoded[i, 32 * g + 16 * half + 2 * t + 8] = next_low * scale
                            decoded[i, 32 * g + 16 * half + 2 * t + 9] = next_high * scale
                else:
                    for i, j in T.Parallel(block_N, block_K // 2):
                        code = T.cast(packed[i, 2 * j // per], "uint32") >> T.cast(2 * j % per * bits, "uint32")
                        scale = T.cast(scale_tile[2 * j // group if rows > 1 else 0, i], dtype)
                        zero = zero_tile[2 * j // group if rows > 1 else 0, i] if zeros else 0
                        if table and copies:
                            low, high = _halves(pair_of[T.cast(code, "int32"), i % 8 * 4 + j % 4], dtype)
                        else:
                            low, high = decode(code, zero, value_of if table else None, nothing)
                        decoded[i, 2 * j] = low * scale
                        decoded[i, 2 * j + 1] = high * scale
                T.gemm(decoded, x_tile, acc, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                y = acc[j, i]
                y = y + _bias(offset, bn * block_N + j)
                out[split, bm * block_M + i, bn * block_N + j] = y

    return product


def deal(block, threads):
    """Y = X, two columns of 16 bits to a word, with those of each 32 in the order in which `product` finds W's: columns q and
    q + 4 of each eight are neighbours, and for q = 0, 1, 2, 3 those of all four eights."""
    m, eights, groups = (T.dynamic(name) for name in ("m", "eights", "groups"))

    @T.prim_func
    def deal(X: T.Tensor((m, eights, 4), "uint32"), Y: T.Tensor((m, groups, 4, 4), "uint32")):
        with T.Kernel(T.ceildiv(eights, block), m, threads=threads) as (part, row):
            x = T.alloc_fragment((block, 4), "uint32")
            T.copy(X[row, part * block : (part + 1) * block, 0:4], x)
            for i in T.Parallel(block):
                at = part * block + i
                for two in T.unroll(2):
                    a, b = x[i, two], x[i, two + 2]
                    Y[row, at // 4, 2 * two, at % 4] = (a & T.uint32(0xFFFF)) | (b << T.uint32(16))
                    Y[row, at // 4, 2 * two + 1, at % 4] = (a >> T.uint32(16)) | (b & T.uint32(0xFFFF0000))

    return deal


def decode(dtype, scale_dtype, bits, signed, group, zeros, table, rows, block_W):
    """weights[i] = W[first + i]: rows of W as numbers, for so many tokens that decoding is little beside the product.

    A thread has a word of each of `rows` rows, all of which are on their way before it decodes the first; rows that are
    neighbours have their scales in one line of memory.
    """
    per = 32 // bits
    n, panel, words, groups = (T.dynamic(name) for name in ("n", "panel", "words", "groups"))
    unused = [T.dynamic(name) for name in ("zero_groups", "zero_n", "codes")]
    places = tuple(range(rows))
    pairs = _pairs(dtype, bits, signed, table)

    @T.prim_func
    def decode(
        W: T.Tensor((n, words), "uint32"),
        scales: T.Tensor((groups, n), scale_dtype),
        zero_points: T.Tensor((groups, n) if zeros else (unused[0], unused[1]), "uint8"),
        values: T.Tensor((2**bits,) if table else (unused[2],), "float32"),
        weights: T.Tensor((panel, words, per), dtype),
        first: T.int32,
    ):
        with T.Kernel(T.ceildiv(words, block_W), T.ceildiv(panel, rows), threads=block_W) as (bw, br):
            held = [T.alloc_fragment((block_W,), "uint32") for _ in places]
            scale_of = [T.alloc_fragment((block_W,), dtype) for _ in places]
            zero_of = [T.alloc_fragment((block_W,), "uint8") for _ in places]
            decoded = T.alloc_fragment((block_W, per), dtype)
            if table:
                value_of = T.alloc_shared((2**bits,), dtype)
                T.copy(values, value_of)
            for w in T.Parallel(block_W):
                part = (bw * block_W + w) * per // group if group else 0
                for r in places:
                    row = first + br * rows + r
                    held[r][w] = W[row, bw * block_W + w]
                    scale_of[r][w] = T.cast(scales[part, row], dtype)
                    if zeros:
                        zero_of[r][w] = zero_points[part, row]
            for r in places:
                for w in T.Parallel(block_W):
                    for c in T.serial(per // 2):
                        code = (held[r][w] >> T.cast(2 * c * bits, "uint32")) & T.uint32(2 ** (2 * bits) - 1)
                        low, high = pairs(code, zero_of[r][w] if zeros else 0, value_of if table else None)
                        decoded[w, 2 * c] = low * scale_of[r][w]
                        decoded[w, 2 * c + 1] = high * scale_of[r][w]
                T.copy(decoded, weights[br * rows + r, bw * block_W : (bw + 1) * block_W, 0:per])

    return decode


def _pairs(dtype, bits, signed, table):
    """`decode(byte, zero, values)`: the two numbers of a byte's lowest codes, less `zero`, or looked up in `values`. A
    mask is a constant, or that with the bits of `nothing`.

    A code in the mantissa of 1024 (bfloat16: 128), where the last bit counts 1, is that number plus the code: two codes
    become two floating numbers by one operation of bits, and the difference of two such numbers is exact.
    """
    one = 0x6400 if dtype == "float16" else 0x4300
    mask, middle = 2**bits - 1, 2 ** (bits - 1) if signed else 0
    flip = one ^ middle  # of two's complement, the highest bit turned round counts upwards from the least number

    def decode(byte, zero, values, nothing=0):
        if table:
            return [values[T.cast(code & T.uint32(mask), "int32")] for code in (byte, byte >> T.uint32(bits))]
        masks = T.uint32(mask << 16 | mask) | nothing  # one code in each half
        pair = ((byte * T.uint32(1 << (16 - bits) | 1)) & masks) ^ T.uint32(flip << 16 | flip)
        less = T.reinterpret(T.cast(T.uint32(one + middle) + T.cast(zero, "uint32"), "uint16"), dtype)
        return [half - less for half in _halves(pair, dtype)]

    return decode


def _pairs_of_word(dtype, signed):
    """`decode(word, zero, nothing)`: codes 0 and 4, then 1 and 5, of the eight codes of a word, as `_pairs` gives two.

    In float16, sixteen times a code fits into the mantissa too: 1024 + 16 * code needs no shift, and a sixteenth of it less
    64 and the zero point is one operation, without rounding.
    """
    one = 0x6400 if dtype == "float16" else 0x4300
    middle = 8 if signed else 0
    flip = (one ^ middle) << 16 | one ^ middle
    flip_16 = flip ^ middle * 0x110011  # the highest bits of sixteen times a code

    def decode(word, zero, nothing):
        # Added, as a LOP3 would take an OR in and leave the exponent to a second one.
        low, high = _halves((word & (T.uint32(0x000F000F) + nothing)) ^ T.uint32(flip), dtype)
        less = T.reinterpret(T.cast(T.uint32(one + middle) + T.cast(zero, "uint32"), "uint16"), dtype)
        if dtype != "float16":
            upper = ((word >> T.uint32(4)) & (T.uint32(0x000F000F) + nothing)) ^ T.uint32(flip)
            return [half - less for half in (low, high, *_halves(upper, dtype))]
        offset = T.cast(T.reinterpret(T.float16(1024 - 64) - less, "uint16"), "uint32") * T.uint32(0x10001)
        upper = (word & (T.uint32(0x00F000F0) + nothing)) ^ T.uint32(flip_16)
        sixteenth = T.uint32(0x2C002C00) + nothing
        codes = T.ptx("fma.rn.f16x2", upper, sixteenth, offset, dtype="uint32", meaning=_fma_halves)
        return [low - less, high - less, *_halves(codes, dtype)]

    return decode


def _fma_halves(a, b, c):
    """PTX ISA, fma.rn.f16x2: a * b + c for both halves of the words, as long as no result overflows."""
    pairs = (struct.unpack("<2e", struct.pack("<I", int(word) & 0xFFFFFFFF)) for word in (a, b, c))
    return int.from_bytes(struct.pack("<2e", *(x * y + z for x, y, z in zip(*pairs))), "little")


def _bias(offset, column):
    """What the bias adds to a column, float32."""
    return T.if_then_else(offset.shape[0] > 0, T.cast(offset[column], "float32"), T.float32(0))


def _halves(word, dtype):
    """The low and the high half of a word as numbers."""
    return [T.reinterpret(T.cast(half, "uint16"), dtype) for half in (word & T.uint32(0xFFFF), word >> T.uint32(16))]


def product_int8(out_dtype, bits, block_M, block_N, block_K, stages, threads, by_planes):
    """With int8 activations and a scale for each row of W, float32 like the bias: sums are exact, in int32.

    `by_planes`, for few tokens on a CPU: the first codes of all bytes of a step, then the second ones, and x in the same order,
    so that vectors of bytes are shifted and masked; W is the transposed operand, which few rows of x multiply as it lies. Else
    a thread decodes four neighbours, as matrix instructions take them.
    """
    per = 8 // bits
    m, n, row_bytes, bias_n = (T.dynamic(name) for name in ("m", "n", "row_bytes", "bias_n"))
    k = row_bytes * per

    @T.prim_func
    def product_int8(
        X: T.Tensor((m, k), "int8"),
        W: T.Tensor((n, row_bytes), "uint8"),
        scales: T.Tensor((1, n), "float32"),
        offset: T.Tensor((bias_n,), "float32"),
        out: T.Tensor((m, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, block_N), T.ceildiv(m, block_M), threads=threads) as (bn, bm):
            x_tile = T.alloc_shared((block_M, block_K), "int8")
            packed = T.alloc_shared((block_N, block_K // per), "uint8")
            decoded = T.alloc_fragment((block_N, block_K), "int8")
            acc = T.alloc_fragment((block_M, block_N) if by_planes else (block_N, block_M), "int32")

            T.clear(acc)
            for step in T.Pipelined(T.ceildiv(k, block_K), num_stages=stages):
                if by_planes:
                    for i, j, c in T.Parallel(block_M, block_K // per, per):
                        x_tile[i, c * (block_K // per) + j] = X[bm * block_M + i, step * block_K + j * per + c]
                else:
                    T.copy(X[bm * block_M, step * block_K], x_tile)
                T.copy(W[bn * block_N, step * (block_K // per)], packed)
                if by_planes:
                    for c in T.serial(per):
                        for i, j in T.Parallel(block_N, block_K // per):
                            shift = T.cast(8 - bits - c * bits, "uint8")
                            code = (packed[i, j] << shift) & T.uint8(0x100 - (1 << (8 - bits)))
                            decoded[i, c * (block_K // per) + j] = T.reinterpret(code, "int8")
                else:
                    for i, j in T.Parallel(block_N, block_K // 4):
                        codes = T.cast(packed[i, 4 * j // per], "uint32") >> T.cast(4 * j % per * bits, "uint32")
                        if bits == 4:
                            codes = codes | (T.cast(packed[i, 2 * j + 1], "uint32") << T.uint32(8))
                        four = _four_bytes(codes, bits)
                        for c in T.serial(4):
                            byte = (four >> T.cast(8 * c, "uint32")) & T.uint32(255)
                            decoded[i, 4 * j + c] = T.reinterpret(T.cast(byte, "uint8"), "int8")
                if by_planes:
                    T.gemm(x_tile, decoded, acc, transpose_B=True)
                else:
                    T.gemm(decoded, x_tile, acc, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                total = acc[i, j] if by_planes else acc[j, i]
                y = T.cast(total, "float32") * (scales[0, bn * block_N + j] * T.float32(2.0 ** (bits - 8)))
                y = y + _bias(offset, bn * block_N + j)
                out[bm * block_M + i, bn * block_N + j] = y

    return product_int8


def _four_bytes(codes, bits):
    """A word of four bytes, each of which has one of the four lowest codes in its highest bits."""
    if bits == 4:
        halves = (codes | (codes << T.uint32(8))) & T.uint32(0x00FF00FF)
        spread = (halves << T.uint32(4)) | (halves << T.uint32(8))
    elif bits == 2:
        spread = ((codes * T.uint32(0x1001)) & T.uint32(0x000F000F)) * T.uint32(0x1040)
    else:
        spread = (codes & T.uint32(15)) * T.uint32(0x10204080)
    return spread & T.uint32(_highest(bits))


def _highest(bits):
    """The mask of the `bits` highest bits of four bytes."""
    return (0x100 - (1 << (8 - bits))) * 0x01010101


def _dealt(words):
    """Words of bytes 0, 1, 2, ... as words of which number f has bytes f, f + len(words), ..."""
    if len(words) == 1:
        return words
    pairs = list(zip(words[::2], words[1::2]))
    even, odd = (
        _dealt([T.ptx("prmt.b32", a, b, chosen, dtype="int32", meaning=_chosen_bytes) for a, b in pairs])
        for chosen in (0x6420, 0x7531)
    )
    return [word for two in zip(even, odd) for word in two]


def _chosen_bytes(a, b, chosen):
    """PTX ISA, prmt: byte n of the result is the byte of b and a that digit n of `chosen` counts."""
    bytes_of = ((int(b) & 0xFFFFFFFF) << 32 | int(a) & 0xFFFFFFFF).to_bytes(8, "little")
    return int.from_bytes([bytes_of[int(chosen) >> 4 * n & 7] for n in range(4)], "little", signed=True)


def _dot(a, b, c):
    """PTX ISA, dp4a: c plus the products of four signed bytes."""
    numbers = [[(int(x) >> 8 * n & 255 ^ 128) - 128 for n in range(4)] for x in (a, b)]
    return int(c) + sum(x * y for x, y in zip(*numbers))


def one_int8(out_dtype, bits, block_N, block_W, threads):
    """`product_int8` for one token, without matrix instructions: four products at a time, each thread for words of its own.

    The codes that are the highest of their bytes are four bytes of integers by one mask, the next ones after a shift. x is
    put in their order: its bytes are exchanged as a matrix is transposed.
    """
    fields = 8 // bits  # codes in a byte, and words of x for a word of W
    places = tuple(range(fields))
    n, length, bias_n = (T.dynamic(name) for name in ("n", "words", "bias_n"))

    @T.prim_func
    def one_int8(
        X: T.Tensor((length, fields), "int32"),
        W: T.Tensor((n, length), "uint32"),
        scales: T.Tensor((1, n), "float32"),
        offset: T.Tensor((bias_n,), "float32"),
        out: T.Tensor((1, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, block_N), threads=threads) as bn:
            packed = T.alloc_fragment((block_N, block_W), "uint32")
            x = T.alloc_shared((block_W, fields), "int32")
            sums = T.alloc_fragment((block_N, block_W // VECTOR), "int32")
            total = T.alloc_fragment((block_N,), "int32")

            T.clear(sums)
            for step in T.serial(T.ceildiv(length, block_W)):
                # Straight to registers: all loads of a step are under way before the first product needs one.
                T.copy(W[bn * block_N, step * block_W], packed, eviction_policy="evict_first")
                T.copy(X[step * block_W, 0], x)
                for j in T.Parallel(block_W // VECTOR):
                    for v in T.serial(VECTOR):
                        of_x = _dealt([x[j * VECTOR + v, f] for f in places])
                        for i in T.serial(block_N):
                            for f, four_of_x in enumerate(of_x):
                                codes = packed[i, j * VECTOR + v] << T.uint32(8 - bits - f * bits)
                                four = T.reinterpret(codes & T.uint32(_highest(bits)), "int32")
                                sums[i, j] = T.ptx(
                                    "dp4a.s32.s32", four, four_of_x, sums[i, j], dtype="int32", meaning=_dot
                                )
            T.reduce_sum(sums, total, dim=1)
            for i in T.Parallel(block_N):
                y = T.cast(total[i], "float32") * (scales[0, bn * block_N + i] * T.float32(2.0 ** (bits - 8)))
                y = y + _bias(offset, bn * block_N + i)
                out[0, bn * block_N + i] = y

    return one_int8


def sum_splits(dtype, out_dtype, block=1024):
    """out = bias + the sum over splits, always in the same order."""
    m, n, splits, bias_n = (T.dynamic(name) for name in ("m", "n", "splits", "bias_n"))

    @T.prim_func
    def sum_splits(
        parts: T.Tensor((splits, m, n), "float32"),
        offset: T.Tensor((bias_n,), dtype),
        out: T.Tensor((m, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, block), m, threads=128) as (bn, row):
            T.pdl_sync()
            total = T.alloc_fragment((block,), "float32")
            T.clear(total)
            for s in T.serial(splits):
                for j in T.Parallel(block):
                    total[j] += parts[s, row, bn * block + j]
            for j in T.Parallel(block):
                y = total[j]
                y = y + _bias(offset, bn * block + j)
                out[row, bn * block + j] = y

    return sum_splits
