"""Normalizations of rows in tile language: RMSNorm, LayerNorm, softmax.

X, Y: (m, n), weight, bias: (n,), all of one type; sums in float32. Extents are dynamic. Each has two kernels: rows that a
block holds are read once, longer ones tile by tile; LayerNorm and softmax have a third one for CPUs, whose caches hold rows.
LayerNorm leaves the statistics of rows in Rows, (2, m, 1) or (0, m, 1), for its gradients: the mean relative to a row's first
element, and 1 / sqrt(variance + eps). Rows of one number: were they of m, whether these fill 16 bytes would decide how a GPU
reads X (`tile_compiler.variants`), and with it the order of a row's sum.

RMSNorm: y = x / sqrt(mean(x^2) + eps) * weight, then y * sigmoid(y) if asked for. Zhang and Sennrich 2019, eq. 4.
LayerNorm: y = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias. Ba, Kiros and Hinton 2016, eq. 4.
Softmax: y = exp(x - max(x)) / sum(exp(x - max(x))).
"""

import tilelang.language as T

#: The least number of float32.
LOWEST = -3.4028234663852886e38


def rms_norm(dtype, block_rows, block_columns, pieces, activation):
    """Rows of up to `block_columns` elements, `block_rows` to a block: read once, kept in registers.

    A row is cut in `pieces`; those past its end cost nothing.
    """
    m, n = T.dynamic("m"), T.dynamic("n")
    width = block_columns // pieces

    @T.prim_func
    def rms_norm(X: T.Tensor((m, n), dtype), weight: T.Tensor((n,), dtype), Y: T.Tensor((m, n), dtype), eps: T.float32):
        with T.Kernel(T.ceildiv(m, block_rows), threads=128) as block:
            x = [T.alloc_fragment((block_rows, width), dtype) for _ in range(pieces)]
            squares = T.alloc_fragment((block_rows, width), "float32")
            scale = T.alloc_fragment((block_rows,), "float32")

            for k in [*range(pieces)]:
                if k * width < n:
                    T.copy(X[block * block_rows, k * width], x[k])  # columns past n read 0 and add nothing
            T.clear(squares)
            for k in [*range(pieces)]:
                if k * width < n:
                    for i, j in T.Parallel(block_rows, width):
                        squares[i, j] += T.cast(x[k][i, j], "float32") * x[k][i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_rows):
                scale[i] = T.rsqrt(scale[i] / n + eps)
            for k in [*range(pieces)]:
                if k * width < n:
                    for i, j in T.Parallel(block_rows, width):
                        y = T.cast(x[k][i, j], "float32") * scale[i] * weight[k * width + j]
                        Y[block * block_rows + i, k * width + j] = y * T.sigmoid(y) if activation == "silu" else y

    return rms_norm


def rms_norm_exact(dtype, vector, columns, lanes, activation, threads=128):
    """Rows of exactly `columns` elements, read and written as one stretch of memory by `vector` elements at once.

    X, Y: (vectors, vector), a row after the other. The vectors of a row lie with threads of several warps, so that their
    squares are added through shared memory, by `lanes` threads for a row.
    """
    vectors = T.dynamic("vectors")
    of_row = columns // vector
    rows = threads // lanes
    each = of_row // lanes

    @T.prim_func
    def rms_norm_exact(
        X: T.Tensor((vectors, vector), dtype),
        weight: T.Tensor((columns,), dtype),
        Y: T.Tensor((vectors, vector), dtype),
        eps: T.float32,
    ):
        with T.Kernel(T.ceildiv(vectors, rows * of_row), threads=threads) as block:
            x = T.alloc_fragment((rows * of_row, vector), dtype)
            squares = T.alloc_fragment((rows * of_row, vector), "float32")
            of_vector = T.alloc_fragment((rows * of_row,), "float32")
            shared = T.alloc_shared((rows * of_row,), "float32")
            of_lane = T.alloc_fragment((rows, lanes), "float32")
            total = T.alloc_fragment((rows,), "float32")
            scale = T.alloc_shared((rows,), "float32")

            T.copy(X[block * rows * of_row, 0], x)  # vectors past the last row read 0
            for v, e in T.Parallel(rows * of_row, vector):
                squares[v, e] = T.cast(x[v, e], "float32") * x[v, e]
            T.reduce_sum(squares, of_vector, dim=1)
            T.copy(of_vector, shared)
            T.clear(of_lane)
            for i, j in T.Parallel(rows, lanes):
                for u in T.serial(each):
                    of_lane[i, j] += shared[(i * lanes + j) * each + u]
            T.reduce_sum(of_lane, total, dim=1)
            for i in T.Parallel(rows):
                scale[i] = T.rsqrt(total[i] / columns + eps)
            for v, e in T.Parallel(rows * of_row, vector):
                y = T.cast(x[v, e], "float32") * scale[v // of_row] * weight[v % of_row * vector + e]
                Y[block * rows * of_row + v, e] = y * T.sigmoid(y) if activation == "silu" else y

    return rms_norm_exact


def rms_norm_long(dtype, block_columns, threads, activation):
    """Rows of any length, in two passes over tiles of `block_columns`, each thread's squares in its own sums."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def rms_norm(X: T.Tensor((m, n), dtype), weight: T.Tensor((n,), dtype), Y: T.Tensor((m, n), dtype), eps: T.float32):
        with T.Kernel(m, threads=threads) as row:
            squares = T.alloc_fragment((block_columns,), "float32")
            scale = T.alloc_fragment((1,), "float32")

            T.clear(squares)
            for k in T.serial(T.ceildiv(n, block_columns)):
                for j in T.Parallel(block_columns):
                    x = T.cast(X[row, k * block_columns + j], "float32")
                    squares[j] += x * x
            T.reduce_sum(squares, scale)
            scale[0] = T.rsqrt(scale[0] / n + eps)
            for k in T.serial(T.ceildiv(n, block_columns)):
                for j in T.Parallel(block_columns):
                    column = k * block_columns + j
                    y = T.cast(X[row, column], "float32") * scale[0] * weight[column]
                    Y[row, column] = y * T.sigmoid(y) if activation == "silu" else y

    return rms_norm


def rms_norm_cached(dtype, block_rows, block_columns, activation):
    """For CPUs: rows of any length, read from memory once and then from a cache, in pieces whose sums stay in registers.

    What a row is written with brings the next one of the block's and adds up its squares.
    """
    m, n = T.dynamic("m, n")

    @T.macro
    def add(X, row, column, count, sums):
        for j in T.Parallel(count):
            x = T.cast(X[row, column + j], "float32")
            sums[j] += x * x

    @T.macro
    def write(X, weight, Y, row, column, count, scale):
        for j in T.Parallel(count):
            y = T.cast(X[row, column + j], "float32") * scale * weight[column + j]
            Y[row, column + j] = y * T.sigmoid(y) if activation == "silu" else y

    @T.macro
    def write_and_add(X, weight, Y, row, column, count, scale, sums):
        for j in T.Parallel(count):
            y = T.cast(X[row, column + j], "float32") * scale * weight[column + j]
            Y[row, column + j] = y * T.sigmoid(y) if activation == "silu" else y
            x = T.cast(X[row + 1, column + j], "float32")
            sums[j] += x * x

    @T.prim_func
    def rms_norm(X: T.Tensor((m, n), dtype), weight: T.Tensor((n,), dtype), Y: T.Tensor((m, n), dtype), eps: T.float32):
        with T.Kernel(T.ceildiv(m, block_rows), threads=128) as block:
            sums = T.alloc_fragment((block_columns,), "float32")
            total = T.alloc_fragment((1,), "float32")
            first = block * block_rows
            rows = T.min(block_rows, m - first)
            last = n // block_columns * block_columns  # where what fills no piece begins
            scale = T.alloc_var("float32", init=0.0)
            T.clear(sums)
            for k in T.serial(n // block_columns):
                add(X, first, k * block_columns, block_columns, sums)
            if last < n:
                add(X, first, last, n - last, sums)
            for i in T.serial(rows):
                row = first + i
                T.reduce_sum(sums, total)
                scale = T.rsqrt(total[0] / n + eps)
                if i + 1 < rows:
                    T.clear(sums)
                    for k in T.serial(n // block_columns):
                        write_and_add(X, weight, Y, row, k * block_columns, block_columns, scale, sums)
                    if last < n:
                        write_and_add(X, weight, Y, row, last, n - last, scale, sums)
                else:
                    for k in T.serial(n // block_columns):
                        write(X, weight, Y, row, k * block_columns, block_columns, scale)
                    if last < n:
                        write(X, weight, Y, row, last, n - last, scale)

    return rms_norm


def layer_norm(dtype, block_rows, block_columns, threads=128):
    """Rows of up to `block_columns` elements: the mean first, then the squares of what is left of it.

    Relative to a row's first element, so that what all of a row have in common takes no digit of the sum.
    """
    m, n, kept = T.dynamic("m, n, kept")

    @T.prim_func
    def layer_norm(
        X: T.Tensor((m, n), dtype),
        weight: T.Tensor((n,), dtype),
        bias: T.Tensor((n,), dtype),
        Y: T.Tensor((m, n), dtype),
        Rows: T.Tensor((kept, m, 1), "float32"),
        eps: T.float32,
    ):
        with T.Kernel(T.ceildiv(m, block_rows), threads=threads) as block:
            x = T.alloc_fragment((block_rows, block_columns), "float32")
            squares = T.alloc_fragment((block_rows, block_columns), "float32")
            origin = T.alloc_fragment((block_rows,), "float32")
            mean = T.alloc_fragment((block_rows,), "float32")
            scale = T.alloc_fragment((block_rows,), "float32")

            for i in T.Parallel(block_rows):
                origin[i] = X[block * block_rows + i, 0]
            for i, j in T.Parallel(block_rows, block_columns):
                x[i, j] = T.if_then_else(j < n, T.cast(X[block * block_rows + i, j], "float32") - origin[i], 0.0)
            T.reduce_sum(x, mean, dim=1)
            for i in T.Parallel(block_rows):
                mean[i] /= n
            for i, j in T.Parallel(block_rows, block_columns):
                x[i, j] = T.if_then_else(j < n, x[i, j] - mean[i], 0.0)
                squares[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_rows):
                scale[i] = T.rsqrt(scale[i] / n + eps)
            if kept > 0:
                T.copy(mean, Rows[0, block * block_rows : (block + 1) * block_rows, 0])
                T.copy(scale, Rows[1, block * block_rows : (block + 1) * block_rows, 0])
            for i, j in T.Parallel(block_rows, block_columns):
                Y[block * block_rows + i, j] = x[i, j] * scale[i] * weight[j] + bias[j]

    return layer_norm


def layer_norm_long(dtype, block_columns, threads):
    """Rows of any length, read three times: for the mean, for the squares, for the result."""
    m, n, kept = T.dynamic("m, n, kept")

    @T.prim_func
    def layer_norm(
        X: T.Tensor((m, n), dtype),
        weight: T.Tensor((n,), dtype),
        bias: T.Tensor((n,), dtype),
        Y: T.Tensor((m, n), dtype),
        Rows: T.Tensor((kept, m, 1), "float32"),
        eps: T.float32,
    ):
        with T.Kernel(m, threads=threads) as row:
            sums = T.alloc_fragment((block_columns,), "float32")
            origin = T.alloc_fragment((1,), "float32")
            mean = T.alloc_fragment((1,), "float32")
            scale = T.alloc_fragment((1,), "float32")

            origin[0] = X[row, 0]
            T.clear(sums)
            for k in T.serial(T.ceildiv(n, block_columns)):
                for j in T.Parallel(block_columns):
                    value = T.cast(X[row, k * block_columns + j], "float32")
                    sums[j] += T.if_then_else(k * block_columns + j < n, value - origin[0], 0.0)
            T.reduce_sum(sums, mean)
            mean[0] /= n
            T.clear(sums)
            for k in T.serial(T.ceildiv(n, block_columns)):
                for j in T.Parallel(block_columns):
                    value = T.cast(X[row, k * block_columns + j], "float32")
                    rest = T.if_then_else(k * block_columns + j < n, value - origin[0] - mean[0], 0.0)
                    sums[j] += rest * rest
            T.reduce_sum(sums, scale)
            scale[0] = T.rsqrt(scale[0] / n + eps)
            if kept > 0:
                Rows[0, row, 0] = mean[0]
                Rows[1, row, 0] = scale[0]
            for k in T.serial(T.ceildiv(n, block_columns)):
                for j in T.Parallel(block_columns):
                    column = k * block_columns + j
                    value = T.cast(X[row, column], "float32") - origin[0]
                    Y[row, column] = (value - mean[0]) * scale[0] * weight[column] + bias[column]

    return layer_norm


def layer_norm_cached(dtype, block_rows, block_columns, ahead=0):
    """For CPUs: rows of any length, read as often as needed while a cache holds them, in pieces whose sums stay in registers.

    What a row is written with adds up the next one of the block's, and fetches the one after it: memory is read while there is
    work. With `ahead`, so many elements, it fetches where results go, too, a row or more of so many ahead, and operands by one
    more.
    """
    m, n, kept = T.dynamic("m, n, kept")
    later = T.ceildiv(ahead, n) if ahead else 1

    @T.macro
    def add(X, row, column, count, origin, sums):
        for j in T.Parallel(count):
            sums[j] += T.cast(X[row, column + j], "float32") - origin

    @T.macro
    def add_squares(X, row, column, count, origin, mean, squares):
        for j in T.Parallel(count):
            rest = T.cast(X[row, column + j], "float32") - origin - mean
            squares[j] += rest * rest

    @T.macro
    def write(X, weight, bias, Y, row, column, count, origin, mean, scale):
        for j in T.Parallel(count):
            rest = T.cast(X[row, column + j], "float32") - origin - mean
            Y[row, column + j] = rest * scale * weight[column + j] + bias[column + j]

    @T.macro
    def write_and_add(X, weight, bias, Y, row, column, count, origin, mean, scale, next_origin, sums):
        T.prefetch(X[row + 1 + later, column : column + count])
        if ahead:
            T.prefetch(Y[row + later, column : column + count])
        for j in T.Parallel(count):
            rest = T.cast(X[row, column + j], "float32") - origin - mean
            Y[row, column + j] = rest * scale * weight[column + j] + bias[column + j]
            sums[j] += T.cast(X[row + 1, column + j], "float32") - next_origin

    @T.prim_func
    def layer_norm(
        X: T.Tensor((m, n), dtype),
        weight: T.Tensor((n,), dtype),
        bias: T.Tensor((n,), dtype),
        Y: T.Tensor((m, n), dtype),
        Rows: T.Tensor((kept, m, 1), "float32"),
        eps: T.float32,
    ):
        with T.Kernel(T.ceildiv(m, block_rows), threads=128) as block:
            sums = T.alloc_fragment((block_columns,), "float32")
            squares = T.alloc_fragment((block_columns,), "float32")
            total = T.alloc_fragment((1,), "float32")
            first = block * block_rows
            rows = T.min(block_rows, m - first)
            last = n // block_columns * block_columns  # where what fills no piece begins
            origin = T.alloc_var("float32", init=X[first, 0])
            next_origin = T.alloc_var("float32", init=0.0)
            mean = T.alloc_var("float32", init=0.0)
            scale = T.alloc_var("float32", init=0.0)
            T.clear(sums)
            for k in T.serial(n // block_columns):
                add(X, first, k * block_columns, block_columns, origin, sums)
            if last < n:
                add(X, first, last, n - last, origin, sums)
            for i in T.serial(rows):
                row = first + i
                T.reduce_sum(sums, total)
                mean = total[0] / n
                T.clear(squares)
                for k in T.serial(n // block_columns):
                    add_squares(X, row, k * block_columns, block_columns, origin, mean, squares)
                if last < n:
                    add_squares(X, row, last, n - last, origin, mean, squares)
                T.reduce_sum(squares, total)
                scale = T.rsqrt(total[0] / n + eps)
                if kept > 0:
                    Rows[0, row, 0] = mean
                    Rows[1, row, 0] = scale
                if i + 1 < rows:
                    next_origin = X[row + 1, 0]
                    T.clear(sums)
                    for k in T.serial(n // block_columns):
                        column = k * block_columns
                        write_and_add(
                            X, weight, bias, Y, row, column, block_columns, origin, mean, scale, next_origin, sums
                        )
                    if last < n:
                        write_and_add(X, weight, bias, Y, row, last, n - last, origin, mean, scale, next_origin, sums)
                    origin = next_origin
                else:
                    for k in T.serial(n // block_columns):
                        write(X, weight, bias, Y, row, k * block_columns, block_columns, origin, mean, scale)
                    if last < n:
                        write(X, weight, bias, Y, row, last, n - last, origin, mean, scale)

    return layer_norm


def softmax(dtype, block_rows, block_columns, threads=128):
    """Rows of up to `block_columns` elements. A row without a finite maximum gives NaN, as its definition does."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def softmax(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(m, block_rows), threads=threads) as block:
            x = T.alloc_fragment((block_rows, block_columns), "float32")
            largest = T.alloc_fragment((block_rows,), "float32")
            total = T.alloc_fragment((block_rows,), "float32")

            for i, j in T.Parallel(block_rows, block_columns):
                value = T.cast(X[block * block_rows + i, j], "float32")
                x[i, j] = T.if_then_else(j < n, value, -T.infinity("float32"))
            T.reduce_max(x, largest, dim=1)
            for i, j in T.Parallel(block_rows, block_columns):
                x[i, j] = T.exp(x[i, j] - largest[i])
            T.reduce_sum(x, total, dim=1)
            for i in T.Parallel(block_rows):
                total[i] = 1 / total[i]
            for i, j in T.Parallel(block_rows, block_columns):
                Y[block * block_rows + i, j] = x[i, j] * total[i]

    return softmax


def softmax_long(dtype, block_columns):
    """For CPUs: rows of any length, read three times: for the maximum, for the sum, for the result."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def softmax(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=128) as row:
            x = T.alloc_fragment((block_columns,), "float32")
            largest = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")

            T.fill(largest, -T.infinity("float32"))
            for k in T.serial(T.ceildiv(n, block_columns)):
                for j in T.Parallel(block_columns):
                    value = T.cast(X[row, k * block_columns + j], "float32")
                    x[j] = T.if_then_else(k * block_columns + j < n, value, -T.infinity("float32"))
                T.reduce_max(x, largest, clear=False)
            T.clear(total)
            for k in T.serial(T.ceildiv(n, block_columns)):
                for j in T.Parallel(block_columns):
                    value = T.cast(X[row, k * block_columns + j], "float32")
                    x[j] = T.if_then_else(k * block_columns + j < n, T.exp(value - largest[0]), 0.0)
                T.reduce_sum(x, total, clear=False)
            total[0] = 1 / total[0]
            for k in T.serial(T.ceildiv(n, block_columns)):
                for j in T.Parallel(block_columns):
                    column = k * block_columns + j
                    y = T.exp(T.cast(X[row, column], "float32") - largest[0])
                    Y[row, column] = y * total[0]

    return softmax


def softmax_streamed(dtype, vector, threads):
    """For GPUs: rows of any length, read twice, `vector` elements a thread at once: first for each thread's own maximum and sum
    relative to it (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018), then for the result."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.macro
    def load(X, row, k, x):
        for i, j in T.Parallel(threads, vector):
            column = (k * threads + i) * vector + j
            x[i, j] = T.if_then_else(column < n, T.cast(X[row, column], "float32"), -T.infinity("float32"))

    @T.prim_func
    def softmax(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=threads) as row:
            x = T.alloc_fragment((threads, vector), "float32")
            largest = T.alloc_fragment((threads,), "float32")
            before = T.alloc_fragment((threads,), "float32")
            sums = T.alloc_fragment((threads,), "float32")
            part = T.alloc_fragment((threads,), "float32")
            top = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.fill(largest, LOWEST)  # not -inf, from which -inf cannot be taken
            T.clear(sums)
            for k in T.serial(T.ceildiv(n, threads * vector)):
                load(X, row, k, x)
                T.copy(largest, before)
                T.reduce_max(x, largest, dim=1, clear=False)
                for i, j in T.Parallel(threads, vector):
                    x[i, j] = T.exp(x[i, j] - largest[i])
                T.reduce_sum(x, part, dim=1)
                for i in T.Parallel(threads):
                    sums[i] = sums[i] * T.exp(before[i] - largest[i]) + part[i]
            T.reduce_max(largest, top)
            for i in T.Parallel(threads):
                sums[i] *= T.exp(largest[i] - top[0])
            T.reduce_sum(sums, total)
            total[0] = 1 / total[0]
            for k in T.serial(T.ceildiv(n, threads * vector)):
                load(X, row, k, x)
                for i, j in T.Parallel(threads, vector):
                    x[i, j] = T.exp(x[i, j] - top[0]) * total[0]
                for i, j in T.Parallel(threads, vector):
                    Y[row, (k * threads + i) * vector + j] = x[i, j]

    return softmax


def softmax_cached(dtype, longest, block_columns):
    """For CPUs: rows of up to `longest` elements, whose exponentials a cache holds until their sum is known. Exponentials leave
    memory idle: meanwhile the next row is fetched, and the place of the result."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.macro
    def find(X, row, column, count, largest):
        for j in T.Parallel(count):
            largest[j] = T.max(largest[j], T.cast(X[row, column + j], "float32"))

    @T.macro
    def exponentiate(X, Y, row, column, count, maximum, kept, sums):
        T.prefetch(X[row + 1, column : column + count])
        T.prefetch(Y[row, column : column + count])
        for j in T.Parallel(count):
            kept[column + j] = T.exp(T.cast(X[row, column + j], "float32") - maximum)
            sums[j] += kept[column + j]

    @T.macro
    def write(Y, row, column, count, kept, scale):
        for j in T.Parallel(count):
            Y[row, column + j] = kept[column + j] * scale

    @T.prim_func
    def softmax(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=128) as row:
            kept = T.alloc_fragment((longest,), "float32")
            largest = T.alloc_fragment((block_columns,), "float32")
            sums = T.alloc_fragment((block_columns,), "float32")
            total = T.alloc_fragment((1,), "float32")
            pieces, last = n // block_columns, n // block_columns * block_columns
            T.fill(largest, -T.infinity("float32"))
            for k in T.serial(pieces):
                find(X, row, k * block_columns, block_columns, largest)
            if last < n:
                find(X, row, last, n - last, largest)
            T.reduce_max(largest, total)
            maximum = T.alloc_var("float32", init=total[0])
            T.clear(sums)
            for k in T.serial(pieces):
                exponentiate(X, Y, row, k * block_columns, block_columns, maximum, kept, sums)
            if last < n:
                exponentiate(X, Y, row, last, n - last, maximum, kept, sums)
            T.reduce_sum(sums, total)
            scale = T.alloc_var("float32", init=1 / total[0])
            for k in T.serial(pieces):
                write(Y, row, k * block_columns, block_columns, kept, scale)
            if last < n:
                write(Y, row, last, n - last, kept, scale)

    return softmax
