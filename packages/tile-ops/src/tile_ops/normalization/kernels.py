"""RMSNorm in tile language: y = x / sqrt(mean(x^2) + eps) * weight, then silu(y) = y * sigmoid(y) if asked for.

X, Y: (m, n), weight: (n,), all of one type; sums in float32. Extents are dynamic. Zhang and Sennrich 2019, eq. 4.
"""

import tilelang.language as T


def rms_norm(dtype, block_rows, block_columns, activation):
    """Rows of up to `block_columns` elements, `block_rows` to a block: read once, kept in registers."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def rms_norm(X: T.Tensor((m, n), dtype), weight: T.Tensor((n,), dtype), Y: T.Tensor((m, n), dtype), eps: T.float32):
        with T.Kernel(T.ceildiv(m, block_rows), threads=128) as block:
            x = T.alloc_fragment((block_rows, block_columns), dtype)
            squares = T.alloc_fragment((block_rows, block_columns), "float32")
            scale = T.alloc_fragment((block_rows,), "float32")

            T.copy(X[block * block_rows, 0], x)  # columns past n read 0 and add nothing
            for i, j in T.Parallel(block_rows, block_columns):
                squares[i, j] = T.cast(x[i, j], "float32") * x[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_rows):
                scale[i] = T.rsqrt(scale[i] / n + eps)
            for i, j in T.Parallel(block_rows, block_columns):
                y = T.cast(x[i, j], "float32") * scale[i] * weight[j]
                Y[block * block_rows + i, j] = y * T.sigmoid(y) if activation == "silu" else y

    return rms_norm


def rms_norm_long(dtype, block_rows, block_columns, activation):
    """Rows of any length, in two passes over tiles of `block_columns`."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def rms_norm(X: T.Tensor((m, n), dtype), weight: T.Tensor((n,), dtype), Y: T.Tensor((m, n), dtype), eps: T.float32):
        with T.Kernel(T.ceildiv(m, block_rows), threads=128) as block:
            squares = T.alloc_fragment((block_rows, block_columns), "float32")
            scale = T.alloc_fragment((block_rows,), "float32")

            T.clear(scale)
            for k in T.serial(T.ceildiv(n, block_columns)):
                for i, j in T.Parallel(block_rows, block_columns):
                    x = T.cast(X[block * block_rows + i, k * block_columns + j], "float32")
                    squares[i, j] = x * x
                T.reduce_sum(squares, scale, dim=1, clear=False)
            for i in T.Parallel(block_rows):
                scale[i] = T.rsqrt(scale[i] / n + eps)
            for k in T.serial(T.ceildiv(n, block_columns)):
                for i, j in T.Parallel(block_rows, block_columns):
                    column = k * block_columns + j
                    y = T.cast(X[block * block_rows + i, column], "float32") * scale[i] * weight[column]
                    Y[block * block_rows + i, column] = y * T.sigmoid(y) if activation == "silu" else y

    return rms_norm
