"""Matrix products in tile language: C = activation(A @ B + bias).

A: (batch_a, m, k), B: (batch_b, k, n), C: (batch, m, n) with rows of any pitch; a transposed operand is stored with its
last two dimensions exchanged. Operands broadcast without copies (`_matrix`). All extents and pitches are dynamic.
Products are summed in float32 (int32 for int8) and rounded once.
"""

import tilelang.language as T


def _operand(rows, columns, transposed, dtype, name):
    """A parameter of matrices (batch, rows, columns), contiguous along one of the two."""
    batch, plane, pitch = T.dynamic(f"batch_{name}"), T.dynamic(f"plane_{name}"), T.dynamic(f"pitch_{name}")
    shape = (batch, columns, rows) if transposed else (batch, rows, columns)
    return T.StridedTensor(shape, (plane, pitch, 1), dtype)


def _matrix(X, batch, z, repeat):
    """Which matrix of X block z multiplies: its own, the only one, the one of `repeat` neighbours, or each in turn."""
    return {"each": z, "shared": 0, "repeated": z // repeat, "cycled": z % X.shape[0]}[batch]


def _tile(rows, columns, transposed):
    return (columns, rows) if transposed else (rows, columns)


@T.macro
def _load(X, batch, row, column, transposed, tile):
    """The tile of op(X) that begins at (row, column)."""
    if transposed:
        T.copy(X[batch, column, row], tile)
    else:
        T.copy(X[batch, row, column], tile)


def _activated(x, activation):
    if activation == "relu":
        return T.max(x, 0.0)
    if activation == "gelu":
        return 0.5 * x * (1.0 + T.erf(x * 0.7071067811865476))
    if activation == "silu":
        return x * T.sigmoid(x)
    return x


def matmul(
    dtype,
    out_dtype,
    transpose_a,
    transpose_b,
    batch_a,
    batch_b,
    bias,
    activation,
    block_m,
    block_n,
    block_k,
    stages,
    threads,
    panel,
):
    """One block for each tile of C. `bias` is the type of a (n,) vector, or None: then None is passed for it."""
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")
    batch, plane, pitch = T.dynamic("batch"), T.dynamic("plane"), T.dynamic("pitch")
    sums = "int32" if dtype == "int8" else "float32"

    @T.prim_func
    def matmul(
        A: _operand(m, k, transpose_a, dtype, "a"),
        B: _operand(k, n, transpose_b, dtype, "b"),
        added: T.Tensor((n,), bias or "float32"),
        C: T.StridedTensor((batch, m, n), (plane, pitch, 1), out_dtype),
        repeat: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(m, block_m), batch, threads=threads) as (bn, bm, z):
            A_tile = T.alloc_shared(_tile(block_m, block_k, transpose_a), dtype)
            B_tile = T.alloc_shared(_tile(block_k, block_n, transpose_b), dtype)
            acc = T.alloc_fragment((block_m, block_n), sums)

            T.use_swizzle(max(panel, 1), enable=panel > 0)
            T.clear(acc)
            for step in T.Pipelined(T.ceildiv(k, block_k), num_stages=stages):
                _load(A, _matrix(A, batch_a, z, repeat), bm * block_m, step * block_k, transpose_a, A_tile)
                _load(B, _matrix(B, batch_b, z, repeat), step * block_k, bn * block_n, transpose_b, B_tile)
                T.gemm(A_tile, B_tile, acc, transpose_A=transpose_a, transpose_B=transpose_b)
            if bias or activation:
                for i, j in T.Parallel(block_m, block_n):
                    x = acc[i, j] + (T.cast(added[bn * block_n + j], sums) if bias else 0)
                    acc[i, j] = _activated(x, activation)
            T.copy(acc, C[z, bm * block_m, bn * block_n])

    return matmul
