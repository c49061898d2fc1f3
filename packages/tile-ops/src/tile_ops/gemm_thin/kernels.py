"""Products by one column of B, and parts of products of few rows by a row-major B.

A: (batch_a, m, k), B: (batch_b, k, n), C: (batch, m, n), as in `gemm/kernels.py`. Sums in float32.
"""

import tilelang.language as T
from tile_ops.gemm.kernels import _activate, _bias, _matrix, _operand, _result


def column(dtype, out_dtype, bias, batch_a, batch_b, block_m, block_k, threads):
    """C = activation(A @ B + bias) of one column, which lies along k: a block reads `block_m` rows of A once, straight to
    registers, `block_k` elements at a time, each of which has a sum of its own; one reduction adds them at the end."""
    batch, m, n, k = T.dynamic("batch, m, n, k")

    @T.prim_func
    def column(
        A: _operand(m, k, False, dtype, "a"),
        B: _operand(k, n, True, dtype, "b"),
        added: _bias(bias),
        C: _result(batch, m, n, out_dtype),
        repeat: T.int32,
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(m, block_m), batch, threads=threads) as (bm, z):
            T.pdl_sync()
            rows = T.alloc_fragment((block_m, block_k), dtype)
            x = T.alloc_fragment((block_k,), dtype)
            sums = T.alloc_fragment((1, block_m, block_k), "float32")
            total = T.alloc_fragment((1, block_m), "float32")

            of_a, of_b = _matrix(A, batch_a, z, repeat), _matrix(B, batch_b, z, repeat)
            T.clear(sums)
            for step in T.serial(T.ceildiv(k, block_k)):
                T.copy(A[of_a, bm * block_m, step * block_k], rows, eviction_policy="evict_first")
                T.copy(B[of_b, 0, step * block_k], x)
                for r, i, j in T.Parallel(1, block_m, block_k):
                    sums[r, i, j] += T.cast(rows[i, j], "float32") * T.cast(x[j], "float32")
            T.reduce_sum(sums, total, dim=2)
            if added.shape[0] > 0:
                for r, i in T.Parallel(1, block_m):
                    total[r, i] += T.cast(added[0], "float32")
            _activate(total, activation)
            for i in T.Parallel(block_m):
                if bm * block_m + i < m:
                    C[z, bm * block_m + i, 0] = total[0, i]

    return column


def row_parts(dtype, rows, block_n, block_k, threads):
    """Partial: (splits, m, n), sums over `steps` steps of `block_k` elements along k each, of up to `rows` rows of A by
    `block_n` columns of B, which lie side by side: each thread reads down a column."""
    m, n, k, splits = T.dynamic("m, n, k, splits")

    @T.prim_func
    def row_parts(
        A: _operand(m, k, False, dtype, "a"),
        B: _operand(k, n, False, dtype, "b"),
        Partial: T.Tensor((splits, m, n), "float32"),
        steps: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n), splits, threads=threads) as (bn, part):
            T.pdl_sync()
            x = T.alloc_shared((rows, block_k), dtype)
            tile = T.alloc_fragment((block_k, block_n), dtype)
            sums = T.alloc_fragment((rows, block_k, block_n), "float32")
            total = T.alloc_fragment((rows, block_n), "float32")

            T.clear(sums)
            for step in T.serial(steps):
                at = (part * steps + step) * block_k
                T.copy(B[0, at, bn * block_n], tile, eviction_policy="evict_first")
                T.copy(A[0, 0, at], x)
                for r, i, j in T.Parallel(rows, block_k, block_n):
                    sums[r, i, j] += T.cast(tile[i, j], "float32") * T.cast(x[r, i], "float32")
            T.reduce_sum(sums, total, dim=1)
            T.copy(total, Partial[part, 0, bn * block_n])

    return row_parts
