"""Products by panels of B in tile language, of float32 and int8: C = activation(A @ B + bias).

A: (batch_a, m, k), B: (batch_b, k, n), C: (batch, m, n) with rows of any pitch; a transposed operand is stored with its last
two dimensions exchanged. The parameters are those of `tile_ops.gemm.kernels.matmul` that these types need. All extents and
pitches are dynamic.
"""

import tilelang.language as T
from tile_ops.gemm.kernels import _activate, _add, _matrix, _operand, _result


def multiply(transpose_a, transpose_b, batch_a, batch_b, block_m, block_n, block_k, pad, dtype="float32"):
    """A block makes `block_m` rows by up to `each` panels of `block_n` columns. For a step of `block_k` along k it copies its
    rows of A once, `pad` elements apart, and meets the panels of B with them one after the other; C is added to where it lies.

    `T.gemm` packs each panel of B from the tensor, as it is for many rows, and its lines are fetched while the one before is
    multiplied. Sums are in float32, each in the order of k, by `block_k` at a time; of int8 in int32, with neither bias nor
    activation.
    """
    sums = "int32" if dtype == "int8" else "float32"
    batch, m, n, k = T.dynamic("batch"), T.dynamic("m"), T.dynamic("n"), T.dynamic("k")
    rows, columns = (block_k, block_m) if transpose_a else (block_m, block_k)

    @T.prim_func
    def multiply(
        A: _operand(m, k, transpose_a, dtype, "a"),
        B: _operand(k, n, transpose_b, dtype, "b"),
        added: T.Tensor((T.dynamic("added_n"),), sums),
        C: _result(batch, m, n, sums),
        repeat: T.int32,
        each: T.int32,
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n * each), T.ceildiv(m, block_m), batch, threads=128) as (group, bm, z):
            A_rows = T.alloc_shared((rows, columns + pad), dtype)
            A_tile = A_rows[0:rows, 0:columns]
            of_a, of_b = _matrix(A, batch_a, z, repeat), _matrix(B, batch_b, z, repeat)
            T.assume((of_a >= 0) & (of_a < A.shape[0]) & (of_b >= 0) & (of_b < B.shape[0]))
            steps, panels = T.max(T.ceildiv(k, block_k), 1), T.min(each, T.ceildiv(n, block_n) - group * each)
            for item in T.serial(steps * panels):
                step, row = item // panels, bm * block_m
                at, column = step * block_k, (group * each + item % panels) * block_n
                T.assume((at >= 0) & (column >= 0))
                if item % panels == 0:
                    if transpose_a:
                        T.copy(A[of_a, at, row], A_tile)
                    else:
                        T.copy(A[of_a, row, at], A_tile)
                T.gemm(
                    A_tile,
                    B[of_b, column : column + block_n, at : at + block_k]
                    if transpose_b
                    else B[of_b, at : at + block_k, column : column + block_n],
                    C[z, row : row + block_m, column : column + block_n],
                    transpose_A=transpose_a,
                    transpose_B=transpose_b,
                    clear_accum=step == 0,
                )
                if sums != "int32" and (step == steps - 1) & ((added.shape[0] > 0) | (activation != 0)):
                    total = T.alloc_fragment((block_m, block_n), "float32")
                    T.copy(C[z, row, column], total)
                    _add(total, added, column)
                    _activate(total, activation)
                    T.copy(total, C[z, row, column])

    return multiply
