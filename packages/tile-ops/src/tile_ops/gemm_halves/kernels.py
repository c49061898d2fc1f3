"""Products in tile language by instructions that multiply pairs, of 16-bit floats, or, in tile registers, of bytes:
C = activation(A @ B + bias).

A: (batch_a, m, k), or (batch_a, steps, rows, block_k + pad) by `turn`; B: (batch_b, k, n); C: (batch, m, n) with rows of any
pitch; a transposed B is stored with its last two dimensions exchanged. The parameters are those of
`tile_ops.gemm.kernels.matmul` that these types need. All extents and pitches are dynamic.
"""

import math

import tilelang.language as T
from tile_ops.gemm.kernels import GELU, RELU, SILU, _matrix, _operand, _relu, _result, _silu

#: log2(erfc(s / sqrt(2)) / 2) + s^2 / (2 ln 2) for 0 <= s <= 5, to 1.8e-5, and 2^r for |r| <= 1/2, to 2.6e-6 of it: near-minimax
#: fits in float64, lowest coefficient first.
LOG_TAIL = (
    -1.0000176429748535, -1.150867223739624, 0.26172205805778503, -0.05260629951953888, 0.007746016141027212,
    -0.0007087831618264318, 2.9458175049512647e-05,
)  # fmt: skip
POWER = (0.9999992847442627, 0.6931217908859253, 0.240247443318367, 0.05591785907745361, 0.009570100344717503)
#: Of (normal distribution's function of x) - 1/2 = x P(x^2) / Q(x^2), |x| <= `FAR`, lowest first, to 2^-22 of it as float32
#: computes it: a near-minimax fit, of whose neighbours in float32 this one errs least. At `FAR`, beyond which are 1.3e-8 of the
#: distribution, it is a little more than 1/2, whether products are rounded before they are added or not.
NUMERATOR = (
    0.3989422917366028, 0.03364173322916031, 0.004661391489207745, 0.00016625289572402835, 6.295387720456347e-06,
    2.2673486199664694e-08,
)  # fmt: skip
DENOMINATOR = (
    1.0, 0.2509937286376953, 0.02851741574704647, 0.0018702107481658459, 7.26129874237813e-05, 1.1910622106370283e-06
)  # fmt: skip
FAR = 5.570000171661377
#: Added to a float32 of some size, this leaves its nearest integer in the last bits; below `LEAST`, powers of 2 are taken for 0.
MAGIC, LEAST = 1.5 * 2**23, -126.0


def _polynomial(x, coefficients):
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def _gelu_of_halves(x):
    """x times the normal distribution's function, for results of 16 bits: to 2^-15 of it for x from -5 on, to 2e-8 below, where
    `_gelu_of_floats` has few digits left."""
    size = T.abs(x)
    power = _polynomial(T.min(size, 5.0), LOG_TAIL) - size * size * (0.5 / math.log(2))
    shifted = power + MAGIC
    part = _polynomial(power - (shifted - MAGIC), POWER)
    bits = T.reinterpret(part, "uint32") + (T.reinterpret(shifted, "uint32") << T.uint32(23))
    tail = T.if_then_else(power > LEAST, T.reinterpret(bits, "float32"), 0.0)
    return x * T.if_then_else(x < 0.0, tail, 1.0 - tail)


def _gelu_of_floats(x):
    """x times the normal distribution's function, to 2^-22 |x|, as torch's. An element takes 0.14 ns on an EPYC with AVX-512; by
    `T.erf`, which has polynomials for small and for large x, 0.40, and by `_gelu_of_halves` 0.22."""
    near = T.max(T.min(x, FAR), -FAR)
    square = near * near
    share = 0.5 + near * (_polynomial(square, NUMERATOR) / _polynomial(square, DENOMINATOR))
    return x * T.max(share, 0.0)  # 0 from -FAR on, however large x is


@T.macro
def _finish(total, added, activation, C, z, row, column):
    """C's tile from (row, column) on = activation(total + the bias of its columns), in one walk through `total`, GELU in two."""
    rows, columns = total.shape
    bias = T.alloc_shared((columns,), "float32")
    T.clear(bias)
    if added.shape[0] > 0:
        T.copy(added[column], bias)
    if activation == RELU:
        for i, j in T.Parallel(rows, columns):
            C[z, row + i, column + j] = _relu(total[i, j] + bias[j])
    elif activation == GELU:
        for i, j in T.Parallel(
            rows, columns
        ):  # by vectors of float32: of twice as many halves registers would not hold it all
            if (row + i < C.shape[1]) & (column + j < C.shape[2]):  # of a tile past C's ends nothing is worth it
                x = total[i, j] + bias[j]
                total[i, j] = _gelu_of_floats(x) if C.dtype == "float32" else _gelu_of_halves(x)
        T.copy(total, C[z, row, column])
    elif activation == SILU:
        for i, j in T.Parallel(rows, columns):
            C[z, row + i, column + j] = _silu(total[i, j] + bias[j])
    else:
        for i, j in T.Parallel(rows, columns):
            C[z, row + i, column + j] = total[i, j] + bias[j]


def turn(dtype, block_m, block_k, pad):
    """Transposed A, (batch, k, m), as rows by steps along k: R[z, s, i, j] = A[z, s * block_k + j, i], with zeros where that
    leaves A.

    Rows of R, of which there are whole blocks, lie `pad` elements apart.
    """
    batch, m, k, steps, rows = (T.dynamic(name) for name in ("batch", "m", "k", "steps", "rows"))

    @T.prim_func
    def turn(A: _operand(m, k, True, dtype, "a"), R: T.Tensor((batch, steps, rows, block_k + pad), dtype)):
        with T.Kernel(rows // block_m, steps, batch, threads=128) as (block, step, z):
            T.assume(z < A.shape[0])
            # Rows a power of two apart would share lines of the first cache.
            columns = T.alloc_shared((block_k, block_m + pad), dtype)
            tile = columns[0:block_k, 0:block_m]
            T.copy(A[z, step * block_k, block * block_m], tile)
            for i, j in T.Parallel(block_m, block_k):
                R[z, step, block * block_m + i, j] = columns[j, i]

    return turn


def multiply(
    dtype,
    out_dtype,
    bias,
    turned,
    transpose_b,
    batch_a,
    batch_b,
    block_m,
    block_n,
    block_k,
    at_once=False,
    pad=0,
    transpose_a=False,
    strip=0,
):
    """A block makes `block_m` rows by up to `each` tiles of `block_n` columns, one after the other.

    Sums in float32 in the order of k, by `block_k` at a time, rounded once; of int8 in int32, with neither bias nor activation.
    With `turned` A is what `turn` made of it; with `transpose_a` a transposed one is read where it lies. `bias`: the type of the
    vector. `at_once`: where one step makes sums that nothing is added to, they are rounded as they are stored, instead of on
    their way from a tile; for levels whose products take such a C in a tensor, and an A that is not transposed. Other sums of one
    step are made and finished by `strip` rows, for the first of which B is prepared, where it is not 0.
    """
    batch, m, n, k = T.dynamic("batch"), T.dynamic("m"), T.dynamic("n"), T.dynamic("k")
    sums = "int32" if dtype == "int8" else "float32"
    rows_of_a = T.Tensor((T.dynamic("batch_a"), T.dynamic("steps"), T.dynamic("rows"), block_k + pad), dtype)

    @T.prim_func
    def multiply(
        A: rows_of_a if turned else _operand(m, k, transpose_a, dtype, "a"),
        B: _operand(k, n, transpose_b, dtype, "b"),
        added: T.Tensor((T.dynamic("added_n"),), bias),
        C: _result(batch, m, n, out_dtype),
        repeat: T.int32,
        each: T.int32,
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n * each), T.ceildiv(m, block_m), batch, threads=128) as (group, bm, z):
            total = T.alloc_fragment((block_m, block_n), sums)
            of_a, of_b = _matrix(A, batch_a, z, repeat), _matrix(B, batch_b, z, repeat)
            T.assume((of_a >= 0) & (of_a < A.shape[0]) & (of_b >= 0) & (of_b < B.shape[0]))
            first = group * each
            T.assume(first >= 0)
            steps = T.max(T.ceildiv(k, block_k), 1)
            tiles = T.min(each, T.ceildiv(n, block_n) - first)
            if at_once and (k <= block_k) & (added.shape[0] == 0) & (activation == 0):
                for tile in T.serial(tiles):
                    row, column = bm * block_m, (first + tile) * block_n
                    T.gemm(
                        A[of_a, row : row + block_m, 0:block_k],
                        B[of_b, column : column + block_n, 0:block_k]
                        if transpose_b
                        else B[of_b, 0:block_k, column : column + block_n],
                        C[z, row : row + block_m, column : column + block_n],
                        transpose_B=transpose_b,
                        clear_accum=True,
                    )
            elif strip and (k <= block_k):
                # Rows a power of two apart would share lines of the first cache.
                apart = T.alloc_shared((strip, block_n + 16), sums)
                some = apart[0:strip, 0:block_n]
                for tile in T.serial(tiles):
                    first_row, column = bm * block_m, (first + tile) * block_n
                    for part in T.serial(T.ceildiv(T.min(block_m, m - first_row), strip)):
                        row = first_row + part * strip
                        T.gemm(
                            A[of_a, row : row + strip, 0:block_k],
                            B[of_b, column : column + block_n, 0:block_k]
                            if transpose_b
                            else B[of_b, 0:block_k, column : column + block_n],
                            some,
                            transpose_B=transpose_b,
                            clear_accum=True,
                        )
                        _finish(some, added, activation, C, z, row, column)
            else:
                # One loop over tiles and steps: each round fetches what the next one reads.
                for item in T.serial(tiles * steps):
                    row, column, step = bm * block_m, (first + item // steps) * block_n, item % steps
                    at = step * block_k
                    T.assume((column >= 0) & (step >= 0))
                    if turned:
                        T.assume(step < A.shape[1])
                    T.gemm(
                        A[of_a, step, row : row + block_m, 0:block_k]
                        if turned
                        else A[of_a, at : at + block_k, row : row + block_m]
                        if transpose_a
                        else A[of_a, row : row + block_m, at : at + block_k],
                        B[of_b, column : column + block_n, at : at + block_k]
                        if transpose_b
                        else B[of_b, at : at + block_k, column : column + block_n],
                        total,
                        transpose_A=transpose_a,
                        transpose_B=transpose_b,
                        clear_accum=step == 0,
                    )
                    if step == steps - 1:
                        if sums != "int32":
                            _finish(total, added, activation, C, z, row, column)
                        else:
                            T.copy(total, C[z, row, column])

    return multiply


def multiply_transposed(dtype, out_dtype, bias, batch_a, batch_b, block_m, block_n, block_k, piece=64):
    """By a transposed B, as the transpose of C: rows of B are read where they lie, and `block_m` rows of A, which are few, are
    turned for `block_n` of them at a time. A block makes all rows of C by up to `each` tiles of `block_n` columns.

    Sums in the order that `multiply` has; `piece` columns of C are turned back at a time.
    """
    batch, m, n, k = T.dynamic("batch"), T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def multiply_transposed(
        A: _operand(m, k, False, dtype, "a"),
        B: _operand(k, n, True, dtype, "b"),
        added: T.Tensor((T.dynamic("added_n"),), bias),
        C: _result(batch, m, n, out_dtype),
        repeat: T.int32,
        each: T.int32,
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n * each), batch, threads=128) as (group, z):
            sums = T.alloc_shared((block_n, block_m), "float32")
            # Rows a power of two apart would share lines of the first cache.
            turned = T.alloc_shared((block_m, piece + 16), "float32")
            total = turned[0:block_m, 0:piece]
            of_a, of_b = _matrix(A, batch_a, z, repeat), _matrix(B, batch_b, z, repeat)
            T.assume((of_a >= 0) & (of_a < A.shape[0]) & (of_b >= 0) & (of_b < B.shape[0]))
            first = group * each
            steps, tiles = T.max(T.ceildiv(k, block_k), 1), T.ceildiv(m, block_m)
            # One loop over tiles and steps: each round fetches what the next one reads.
            for item in T.serial(T.min(each, T.ceildiv(n, block_n) - first) * tiles * steps):
                row, column = item // steps % tiles * block_m, (first + item // (steps * tiles)) * block_n
                step = item % steps
                at = step * block_k
                T.assume((row >= 0) & (column >= 0) & (step >= 0))
                T.gemm(
                    B[of_b, column : column + block_n, at : at + block_k],
                    A[of_a, row : row + block_m, at : at + block_k],
                    sums,
                    transpose_B=True,
                    clear_accum=step == 0,
                )
                if step == steps - 1:
                    for part in T.serial(T.ceildiv(T.min(block_n, n - column), piece)):
                        for i, j in T.Parallel(block_m, piece):
                            turned[i, j] = sums[part * piece + j, i]
                        _finish(total, added, activation, C, z, row, column + part * piece)

    return multiply_transposed
