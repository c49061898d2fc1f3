"""Products of matrices in tile language that do not copy B, and of float32 nothing: C = activation(A @ B + bias).

A: (batch_a, m, k), B: (batch_b, k, n), C: (batch, m, n) with rows of any pitch; a transposed operand is stored with its last
two dimensions exchanged. The parameters are those of `tile_ops.gemm.kernels.matmul` that these types need. All extents and
pitches are dynamic.
"""

import tilelang.language as T
from tile_ops.gemm.kernels import (
    GELU,
    RELU,
    SILU,
    _activate,
    _add,
    _add_columns,
    _matrix,
    _operand,
    _relu,
    _result,
    _silu,
    _sum_rows,
)
from tile_ops.gemm_halves.kernels import _finish, _gelu_of_floats

#: Rows of C that get a bias and an activation at once, of which tiles have a multiple.
ENDED = 8


@T.macro
def _product(A, B, C, of_a, of_b, z, row, column, at, turned, sizes):
    """The tile of matrix z of C from (row, column) on (+)= op(A) @ op(B) over the steps from `at` on."""
    (transpose_a, transpose_b), (block_m, block_n, block_k) = turned, sizes
    rows, steps, columns = slice(row, row + block_m), slice(at, at + block_k), slice(column, column + block_n)
    T.gemm(
        A[of_a, steps, rows] if transpose_a else A[of_a, rows, steps],
        B[of_b, columns, steps] if transpose_b else B[of_b, steps, columns],
        C[z, rows, columns],
        transpose_A=transpose_a,
        transpose_B=transpose_b,
        clear_accum=at == 0,
    )


def multiply(transpose_a, transpose_b, batch_a, batch_b, block_m, block_n, block_k):
    """One block for each tile of C; sums in float32 in the order of k, by `block_k` at a time."""
    turned, sizes = (transpose_a, transpose_b), (block_m, block_n, block_k)
    batch, m, n, k = T.dynamic("batch"), T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def multiply(
        A: _operand(m, k, transpose_a, "float32", "a"),
        B: _operand(k, n, transpose_b, "float32", "b"),
        added: T.Tensor((T.dynamic("added_n"),), "float32"),
        C: _result(batch, m, n, "float32"),
        repeat: T.int32,
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(m, block_m), batch, threads=128) as (bn, bm, z):
            row, column = bm * block_m, bn * block_n
            of_a, of_b = _matrix(A, batch_a, z, repeat), _matrix(B, batch_b, z, repeat)
            T.assume((of_a >= 0) & (of_a < A.shape[0]) & (of_b >= 0) & (of_b < B.shape[0]))
            for step in T.serial(T.max(T.ceildiv(k, block_k), 1)):
                _product(A, B, C, of_a, of_b, z, row, column, step * block_k, turned, sizes)
            if (added.shape[0] > 0) | (activation != 0):
                total = T.alloc_fragment((ENDED, block_n), "float32")
                for part in T.serial(T.ceildiv(T.min(block_m, m - row), ENDED)):  # no more rows than there are
                    T.copy(C[z, row + part * ENDED, column], total)
                    _finish(total, added, activation, C, z, row + part * ENDED, column)

    return multiply


def multiply_few(dtype, tile_dtype, out_dtype, bias, batch_a, batch_b, block_m, block_n, block_k):
    """Few rows by a transposed B, which is read from memory once, line by line: of A, which all rows of B meet, a tile is copied,
    as `tile_dtype`.

    Sums in float32 in the order of k, by `block_k` at a time; of int8 in int32, with neither bias nor activation. `bias`: the
    type of the vector.
    """
    batch, m, n, k = T.dynamic("batch"), T.dynamic("m"), T.dynamic("n"), T.dynamic("k")
    sums = "int32" if dtype == "int8" else "float32"

    @T.prim_func
    def multiply_few(
        A: _operand(m, k, False, dtype, "a"),
        B: _operand(k, n, True, dtype, "b"),
        added: T.Tensor((T.dynamic("added_n"),), bias),
        C: _result(batch, m, n, out_dtype),
        repeat: T.int32,
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(m, block_m), batch, threads=128) as (bn, bm, z):
            row, column = bm * block_m, bn * block_n
            of_a, of_b = _matrix(A, batch_a, z, repeat), _matrix(B, batch_b, z, repeat)
            T.assume((of_b >= 0) & (of_b < B.shape[0]))  # a matrix that may not be there is copied
            rows = T.alloc_shared((block_m, block_k), tile_dtype)
            total = T.alloc_fragment((block_m, block_n), sums)
            T.clear(total)
            for step in T.serial(T.ceildiv(k, block_k)):
                at = step * block_k
                T.copy(A[of_a, row, at], rows)
                T.gemm(rows, B[of_b, column : column + block_n, at : at + block_k], total, transpose_B=True)
            if sums != "int32":
                _add(total, added, column)
                _activate(total, activation)
            T.copy(total, C[z, row, column])

    return multiply_few


def multiply_column(dtype, out_dtype, bias, transpose_a, batch_a, batch_b, block_m, block_k, lanes):
    """One column of B, which lies along k, by A as it lies: `block_m` rows of A at once, each in `lanes` sums, or of a transposed
    one `block_m` columns, `block_k` elements of k a step. `bias`: the type of the vector."""
    batch, m, n, k = T.dynamic("batch"), T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def multiply_column(
        A: _operand(m, k, transpose_a, dtype, "a"),
        B: _operand(k, n, True, dtype, "b"),
        added: T.Tensor((T.dynamic("added_n"),), bias),
        C: _result(batch, m, n, out_dtype),
        repeat: T.int32,
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(m, block_m), batch, threads=1) as (bm, z):
            of_a, of_b = _matrix(A, batch_a, z, repeat), _matrix(B, batch_b, z, repeat)
            T.assume((of_a >= 0) & (of_a < A.shape[0]) & (of_b >= 0) & (of_b < B.shape[0]) & (B.shape[1] == 1))
            row = bm * block_m
            total = T.alloc_fragment((1, block_m), "float32")
            if transpose_a:
                T.clear(total)
                _add_columns(B, A, of_b, of_a, total, 0, k, row, block_k)
            else:
                sums = T.alloc_fragment((1, block_m, lanes), "float32")
                _sum_rows(B, A, of_b, of_a, sums, row, block_k, 0)
                T.reduce_sum(sums, total, dim=2)
            if added.shape[0] > 0:
                for r, i in T.Parallel(1, block_m):
                    total[r, i] += T.cast(added[0], "float32")
            _activate(total, activation)
            for i in T.Parallel(block_m):
                C[z, row + i, 0] = total[0, i]

    return multiply_column


@T.macro
def _write_row(A, rows_of_b, bias, C, of_a, z, row, column, count, finish, transpose_a):
    """Row `row` of C from `column` on = finish(that of A @ `rows_of_b` + bias), `count` elements."""
    depth = rows_of_b.shape[0]
    x = T.alloc_fragment((depth,), "float32")
    for step in T.serial(depth):
        x[step] = A[of_a, step, row] if transpose_a else A[of_a, row, step]
    for j in T.Parallel(count):
        C[z, row, column + j] = finish(sum(x[step] * rows_of_b[step, j] for step in range(depth)) + bias[j])


def multiply_shallow(transpose_a, transpose_b, batch_a, batch_b, depth, block_m, block_n):
    """`depth` steps along k, which are few: `block_m` rows of C by pieces of `block_n` elements, each written once from one end
    to the other."""
    batch, m, n = T.dynamic("batch"), T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def multiply_shallow(
        A: _operand(m, depth, transpose_a, "float32", "a"),
        B: _operand(depth, n, transpose_b, "float32", "b"),
        added: T.Tensor((T.dynamic("added_n"),), "float32"),
        C: _result(batch, m, n, "float32"),
        repeat: T.int32,
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(m, block_m), batch, threads=1) as (bn, bm, z):
            first, column = bm * block_m, bn * block_n
            of_a, of_b = _matrix(A, batch_a, z, repeat), _matrix(B, batch_b, z, repeat)
            T.assume((of_a >= 0) & (of_a < A.shape[0]) & (of_b >= 0) & (of_b < B.shape[0]))
            count = T.min(block_n, n - column)
            rows_of_b = T.alloc_shared((depth, block_n), "float32")
            bias = T.alloc_shared((block_n,), "float32")
            T.clear(bias)
            for step in T.serial(depth):
                for j in T.Parallel(count):
                    rows_of_b[step, j] = B[of_b, column + j, step] if transpose_b else B[of_b, step, column + j]
            if added.shape[0] > 0:
                T.copy(added[column], bias)
            for r in T.serial(T.min(block_m, m - first)):
                row = first + r
                if activation == RELU:
                    _write_row(A, rows_of_b, bias, C, of_a, z, row, column, count, _relu, transpose_a)
                elif activation == GELU:
                    _write_row(A, rows_of_b, bias, C, of_a, z, row, column, count, _gelu_of_floats, transpose_a)
                elif activation == SILU:
                    _write_row(A, rows_of_b, bias, C, of_a, z, row, column, count, _silu, transpose_a)
                else:
                    _write_row(A, rows_of_b, bias, C, of_a, z, row, column, count, lambda x: x, transpose_a)

    return multiply_shallow
