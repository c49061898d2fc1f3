"""Products of float16 in tile registers that multiply bfloat16, in tile language: C = activation(A @ B + bias).

A number of float16, which has 11 bits, is the sum of two of bfloat16, which has 8, exactly: `high`, the one next to it, and
`low`, what is left. C is the sum of high * high, and of what the two mixed products make; low * low, at most 2^-18 of a product,
is left out. An infinity or a NaN among the sums of high * high is the result: what is mixed of it means nothing.

A: what `split` makes of (batch_a, m, k); B: (batch_b, k, n); C: (batch, m, n) with rows of any pitch; a transposed operand is
stored with its last two dimensions exchanged. The parameters are those of `tile_ops.gemm.kernels.matmul` that these types need.
All extents and pitches are dynamic.
"""

import tilelang.language as T
from tile_ops.gemm.kernels import _matrix, _operand, _result
from tile_ops.gemm_halves.kernels import _finish

#: Of the bits of a float32: half of the last place that bfloat16 has, which rounds to the next one, and all of its places.
HALF_PLACE, PLACES = 0x8000, 0xFFFF0000


def _high(x):
    """The bits of a float16, as those of the float32 that is rounded to bfloat16."""
    return (T.reinterpret(T.cast(x, "float32"), "uint32") + T.uint32(HALF_PLACE)) & T.uint32(PLACES)


def _low(x):
    """The bits of what is left of x, which bfloat16 holds."""
    return T.reinterpret(T.cast(x, "float32") - T.reinterpret(_high(x), "float32"), "uint32")


def _half(bits):
    """The upper half of a float32 of such bits."""
    return T.reinterpret(T.cast(bits >> T.uint32(16), "uint16"), "bfloat16")


@T.macro
def _split_rows(B, of_b, row, at, parts, shape):
    """Rows of a transposed B from (row, at) on: the low parts, and behind them the high ones."""
    rows, steps = shape
    for i, j in T.Parallel(rows, steps):
        parts[i, j] = _half(_low(B[of_b, row + i, at + j]))
        parts[i, steps + j] = _half(_high(B[of_b, row + i, at + j]))


def split(transposed, block_m, block_k, pad):
    """A, (batch, m, k), as rows by steps along k: R[z, s, i] is, of A[z, i] from column s * block_k on, the high parts and then
    the low ones, with zeros where that leaves A.

    Rows of R, of which there are whole blocks, lie `pad` elements apart.
    """
    batch, m, k, steps, rows = (T.dynamic(name) for name in ("batch", "m", "k", "steps", "rows"))

    @T.prim_func
    def split(
        A: _operand(m, k, transposed, "float16", "a"),
        R: T.Tensor((batch, steps, rows, 2 * block_k + pad), "bfloat16"),
    ):
        with T.Kernel(rows // block_m, steps, batch, threads=128) as (block, step, z):
            T.assume(z < A.shape[0])
            row, at = block * block_m, step * block_k
            if transposed:
                # Rows a power of two apart would share lines of the first cache.
                columns = T.alloc_shared((block_k, block_m + pad), "float16")
                tile = columns[0:block_k, 0:block_m]
                T.copy(A[z, at, row], tile)
            for i, j in T.Parallel(block_m, block_k):
                x = columns[j, i] if transposed else A[z, row + i, at + j]
                R[z, step, row + i, j] = _half(_high(x))
                R[z, step, row + i, block_k + j] = _half(_low(x))

    return split


def multiply(out_dtype, bias, transpose_b, batch_a, batch_b, block_m, block_n, block_k, pad):
    """A block makes `block_m` rows by up to `each` tiles of `block_n` columns, one after the other; a tile of B is split for each
    step along k: low parts, then the high ones, so that those of A, which lie the other way, meet them. Sums in float32, of high
    * high and of the mixed products each in the order of k, are added and rounded once."""
    batch, m, n, k = T.dynamic("batch"), T.dynamic("m"), T.dynamic("n"), T.dynamic("k")
    before, behind, both = slice(0, block_k), slice(block_k, 2 * block_k), slice(0, 2 * block_k)
    columns = slice(0, block_n)

    @T.prim_func
    def multiply(
        A: T.Tensor((T.dynamic("batch_a"), T.dynamic("steps"), T.dynamic("rows"), 2 * block_k + pad), "bfloat16"),
        B: _operand(k, n, transpose_b, "float16", "b"),
        added: T.Tensor((T.dynamic("added_n"),), bias),
        C: _result(batch, m, n, out_dtype),
        repeat: T.int32,
        each: T.int32,
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n * each), T.ceildiv(m, block_m), batch, threads=128) as (group, bm, z):
            total = T.alloc_fragment((block_m, block_n), "float32")
            mixed = T.alloc_fragment((block_m, block_n), "float32")
            parts = T.alloc_shared((block_n, 2 * block_k + pad) if transpose_b else (2 * block_k, block_n), "bfloat16")
            of_a, of_b = _matrix(A, batch_a, z, repeat), _matrix(B, batch_b, z, repeat)
            T.assume((of_a >= 0) & (of_a < A.shape[0]) & (of_b >= 0) & (of_b < B.shape[0]))
            first, steps = group * each, A.shape[1]
            T.assume(first >= 0)
            for item in T.serial(T.min(each, T.ceildiv(n, block_n) - first) * steps):
                column, step = (first + item // steps) * block_n, item % steps
                at = step * block_k
                T.assume((column >= 0) & (step >= 0) & (step < A.shape[1]))
                rows = slice(bm * block_m, bm * block_m + block_m)
                if transpose_b:
                    _split_rows(B, of_b, column, at, parts, (block_n, block_k))
                else:
                    for i, j in T.Parallel(block_k, block_n):
                        parts[i, j] = _half(_low(B[of_b, at + i, column + j]))
                        parts[block_k + i, j] = _half(_high(B[of_b, at + i, column + j]))
                T.gemm(
                    A[of_a, step, rows, before],
                    parts[columns, behind] if transpose_b else parts[behind, columns],
                    total,
                    transpose_B=transpose_b,
                    clear_accum=step == 0,
                )
                T.gemm(
                    A[of_a, step, rows, both],
                    parts[columns, both] if transpose_b else parts[both, columns],
                    mixed,
                    transpose_B=transpose_b,
                    clear_accum=step == 0,
                )
                if step == steps - 1:
                    for i, j in T.Parallel(block_m, block_n):
                        total[i, j] = T.if_then_else(T.isfinite(total[i, j]), total[i, j] + mixed[i, j], total[i, j])
                    _finish(total, added, activation, C, z, bm * block_m, column)

    return multiply


def multiply_transposed(out_dtype, bias, batch_a, batch_b, block_m, block_n, block_k, pad, piece=64):
    """By a transposed B, as the transpose of C: the parts of rows of B are multiplied as they lie, and `block_m` rows of A, which
    are few, are turned for `block_n` of them at a time. A block makes all rows of C by up to `each` tiles of `block_n` columns.

    Sums in the order that `multiply` has; `piece` columns of C are turned back at a time.
    """
    batch, m, n, k = T.dynamic("batch"), T.dynamic("m"), T.dynamic("n"), T.dynamic("k")
    before, behind, both = slice(0, block_k), slice(block_k, 2 * block_k), slice(0, 2 * block_k)
    columns = slice(0, block_n)

    @T.prim_func
    def multiply_transposed(
        A: T.Tensor((T.dynamic("batch_a"), T.dynamic("steps"), T.dynamic("rows"), 2 * block_k + pad), "bfloat16"),
        B: _operand(k, n, True, "float16", "b"),
        added: T.Tensor((T.dynamic("added_n"),), bias),
        C: _result(batch, m, n, out_dtype),
        repeat: T.int32,
        each: T.int32,
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n * each), batch, threads=128) as (group, z):
            sums = T.alloc_shared((block_n, block_m), "float32")
            mixed = T.alloc_shared((block_n, block_m), "float32")
            parts = T.alloc_shared((block_n, 2 * block_k + pad), "bfloat16")
            # Rows a power of two apart would share lines of the first cache.
            turned = T.alloc_shared((block_m, piece + 16), "float32")
            total = turned[0:block_m, 0:piece]
            of_a, of_b = _matrix(A, batch_a, z, repeat), _matrix(B, batch_b, z, repeat)
            T.assume((of_a >= 0) & (of_a < A.shape[0]) & (of_b >= 0) & (of_b < B.shape[0]))
            first, steps, tiles = group * each, A.shape[1], T.ceildiv(m, block_m)
            for item in T.serial(T.min(each, T.ceildiv(n, block_n) - first) * tiles * steps):
                row, column = item // steps % tiles * block_m, (first + item // (steps * tiles)) * block_n
                step = item % steps
                at = step * block_k
                T.assume((row >= 0) & (column >= 0) & (step >= 0) & (step < A.shape[1]))
                rows = slice(row, row + block_m)
                _split_rows(B, of_b, column, at, parts, (block_n, block_k))
                fresh = step == 0
                T.gemm(parts[columns, behind], A[of_a, step, rows, before], sums, transpose_B=True, clear_accum=fresh)
                T.gemm(parts[columns, both], A[of_a, step, rows, both], mixed, transpose_B=True, clear_accum=fresh)
                if step == steps - 1:
                    for part in T.serial(T.ceildiv(T.min(block_n, n - column), piece)):
                        for i, j in T.Parallel(block_m, piece):
                            exact, other = sums[part * piece + j, i], mixed[part * piece + j, i]
                            turned[i, j] = T.if_then_else(T.isfinite(exact), exact + other, exact)
                        _finish(total, added, activation, C, z, row, column + part * piece)

    return multiply_transposed
