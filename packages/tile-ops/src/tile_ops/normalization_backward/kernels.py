"""Gradients of RMSNorm, LayerNorm and softmax in tile language.

X, DY, DX: (m, n), weight: (n,), all of one type; sums in float32. With r = 1 / sqrt(mean((x - c)^2) + eps), c = mean(x) for
LayerNorm and 0 for RMSNorm, h = (x - c) r and g the gradient of h * weight:

    dx = r (g * weight - mean(g * weight * h) h - [LayerNorm] mean(g * weight))
    dweight = sum over rows of g * h, dbias = sum over rows of g

and for softmax dx = y (dy - sum(dy y)). LayerNorm's c and r are those of the forward pass, Rows, (2, m, 1): c relative to a row's
first element, its origin, which keeps what all of a row have in common out of the digits. RMSNorm's r is computed again, with
no traffic, as x is read anyway.
"""

import tilelang.language as T


def norm_backward(dtype, block_rows, block_columns, threads, stages, centered, activation):
    """Rows of up to `block_columns` elements: read once, kept in registers. Block p of `parts` takes tiles p, p + parts, ..., the
    next ones on their way through shared memory meanwhile (`stages`, 0 for none), and
    writes what its rows add to dweight, with `centered` (LayerNorm) also to dbias: Partial, (1 or 2, parts, n), or (0, parts, n)
    where nobody asks. Rows: (0, m, 1) for RMSNorm."""
    m, n, kinds, parts, kept = T.dynamic("m, n, kinds, parts, kept")

    @T.prim_func
    def norm_backward(
        X: T.Tensor((m, n), dtype),
        weight: T.Tensor((n,), dtype),
        DY: T.Tensor((m, n), dtype),
        Rows: T.Tensor((kept, m, 1), "float32"),
        DX: T.Tensor((m, n), dtype),
        Partial: T.Tensor((kinds, parts, n), "float32"),
        eps: T.float32,
    ):
        with T.Kernel(parts, threads=threads) as part:
            if stages:
                x_ahead = T.alloc_shared((block_rows, block_columns), dtype)
                dy_ahead = T.alloc_shared((block_rows, block_columns), dtype)
            x = T.alloc_fragment((block_rows, block_columns), "float32")
            g = T.alloc_fragment((block_rows, block_columns), "float32")
            scratch = T.alloc_fragment((block_rows, block_columns), "float32")
            origin = T.alloc_fragment((block_rows,), "float32")
            mean = T.alloc_fragment((block_rows,), "float32")
            scale = T.alloc_fragment((block_rows,), "float32")
            along = T.alloc_fragment((block_rows,), "float32")  # mean of g * weight * h
            across = T.alloc_fragment((block_rows,), "float32")  # mean of g * weight
            dweight = T.alloc_fragment((block_rows, block_columns), "float32")
            total = T.alloc_fragment((block_columns,), "float32")
            T.clear(dweight)
            if centered:
                dbias = T.alloc_fragment((block_rows, block_columns), "float32")
                T.clear(dbias)
                next_mean = T.alloc_fragment((block_rows,), "float32")
                next_scale = T.alloc_fragment((block_rows,), "float32")
                for i in T.Parallel(block_rows):
                    next_mean[i] = Rows[0, part * block_rows + i, 0]
                    next_scale[i] = Rows[1, part * block_rows + i, 0]

            for turn in T.Pipelined(T.ceildiv(T.ceildiv(m, block_rows) - part, parts), num_stages=stages):
                first = (part + turn * parts) * block_rows
                if centered:  # those of the next tile have a turn's time to come
                    for i in T.Parallel(block_rows):
                        mean[i] = next_mean[i]
                        scale[i] = next_scale[i]
                        next_mean[i] = Rows[0, first + parts * block_rows + i, 0]
                        next_scale[i] = Rows[1, first + parts * block_rows + i, 0]
                if stages:
                    T.copy(X[first, 0], x_ahead)
                    T.copy(DY[first, 0], dy_ahead)
                # columns past n read 0 and add nothing, and so do rows past m
                T.copy(x_ahead if stages else X[first, 0], x)
                T.copy(dy_ahead if stages else DY[first, 0], g)
                if centered:
                    for i in T.Parallel(block_rows):
                        origin[i] = x_ahead[i, 0] if stages else X[first + i, 0]
                    for i, j in T.Parallel(block_rows, block_columns):
                        x[i, j] = x[i, j] - origin[i] - mean[i]  # past n g is 0
                else:
                    for i, j in T.Parallel(block_rows, block_columns):
                        scratch[i, j] = x[i, j] * x[i, j]
                    T.reduce_sum(scratch, scale, dim=1)
                    for i in T.Parallel(block_rows):
                        scale[i] = T.if_then_else(first + i < m, T.rsqrt(scale[i] / n + eps), 0.0)
                for i, j in T.Parallel(block_rows, block_columns):
                    x[i, j] *= scale[i]
                    if activation == "silu":
                        y = x[i, j] * weight[j]
                        gate = T.sigmoid(y)
                        g[i, j] *= gate * (1 + y * (1 - gate))
                    dweight[i, j] += g[i, j] * x[i, j]
                    if centered:
                        dbias[i, j] += g[i, j]
                    g[i, j] *= weight[j]
                    scratch[i, j] = g[i, j] * x[i, j]
                T.reduce_sum(scratch, along, dim=1)
                if centered:
                    T.reduce_sum(g, across, dim=1)
                for i in T.Parallel(block_rows):
                    along[i] /= n
                    if centered:
                        across[i] /= n
                for i, j in T.Parallel(block_rows, block_columns):
                    rest = g[i, j] - x[i, j] * along[i]
                    DX[first + i, j] = scale[i] * (rest - across[i] if centered else rest)

            if kinds > 0:
                T.reduce_sum(dweight, total, dim=0)
                T.copy(total, Partial[0, part, 0:block_columns])
                if centered:
                    T.reduce_sum(dbias, total, dim=0)
                    T.copy(total, Partial[1, part, 0:block_columns])

    return norm_backward


def _normed(X, row, column, mean, scale):
    """h there."""
    return (T.cast(X[row, column], "float32") - mean) * scale


def _gradient(DY, weight, row, column, h, activation):
    """g there."""
    dy = T.cast(DY[row, column], "float32")
    if activation == "silu":
        y = h * weight[column]
        gate = T.sigmoid(y)
        return dy * gate * (1 + y * (1 - gate))
    return dy


def norm_backward_cached(dtype, block_columns, centered, activation, fetched="", together=1):
    """For CPUs: `together` rows at a time, each read as often as needed while a cache holds it, in pieces whose sums stay in
    registers. A part has neighbouring rows, and its sums lie in Partial, (1 or 2, parts, n) or (0, parts, n), from the
    beginning: rows that are together are added to them at once. Rows: (0, m, 1) for RMSNorm.

    `fetched`: "result", the place of a row's result is fetched while the row is summed; "all", the next row is, too, while the
    result is written.
    """
    m, n, kinds, parts, kept = T.dynamic("m, n, kinds, parts, kept")
    last = 1 if centered else 0  # kind of sums
    # Loops over a tuple are Python's: the rows are written out, and their sums have names.

    @T.macro
    def add(X, weight, DY, DX, row, rows, column, count, mean, squares, dots, sums):
        """`dots` but for the factor r, which RMSNorm's `squares` tell."""
        if fetched:
            T.prefetch(DX[row : row + rows, column : column + count])
        for j in T.Parallel(count):
            for r in tuple(range(rows)):
                rest = T.cast(X[row + r, column + j], "float32") - mean[r]
                if not centered:
                    squares[r, j] += rest * rest
                if activation is None:
                    g = T.cast(DY[row + r, column + j], "float32") * weight[column + j]
                    dots[r, j] += g * rest
                    if centered:
                        sums[r, j] += g

    @T.macro
    def add_dots(X, weight, DY, row, rows, column, count, scale, dots):
        for j in T.Parallel(count):
            for r in tuple(range(rows)):
                x = T.cast(X[row + r, column + j], "float32")
                g = _gradient(DY, weight, row + r, column + j, x * scale[r], activation)
                dots[r, j] += g * weight[column + j] * x

    @T.macro
    def finish(X, weight, DY, Partial, DX, part, row, rows, column, count, mean, scale, along, across, summed):
        if fetched == "all":
            T.prefetch(X[row + rows : row + 2 * rows, column : column + count])
            T.prefetch(DY[row + rows : row + 2 * rows, column : column + count])
        for j in T.Parallel(count):
            h = [_normed(X, row + r, column + j, mean[r], scale[r]) for r in range(rows)]
            g = [_gradient(DY, weight, row + r, column + j, h[r], activation) for r in range(rows)]
            if summed:
                Partial[0, part, column + j] += sum(g[r] * h[r] for r in range(rows))
                if centered:
                    Partial[last, part, column + j] += sum(g)
            for r in tuple(range(rows)):
                rest = g[r] * weight[column + j] - h[r] * along[r]
                DX[row + r, column + j] = scale[r] * (rest - across[r] if centered else rest)

    @T.macro
    def finish_rows(X, weight, DY, Partial, DX, part, row, rows, n, mean, scale, along, across, summed):
        factors, end = (mean, scale, along, across), n // block_columns * block_columns
        for k in T.serial(n // block_columns):
            finish(X, weight, DY, Partial, DX, part, row, rows, k * block_columns, block_columns, *factors, summed)
        if end < n:
            finish(X, weight, DY, Partial, DX, part, row, rows, end, n % block_columns, *factors, summed)

    @T.macro
    def differentiate(
        X, weight, DY, Rows, Partial, DX, part, row, rows, eps, squares, dots, sums, mean, scale, along, across
    ):
        pieces, end = n // block_columns, n // block_columns * block_columns
        for r in T.Parallel(rows):
            mean[r] = 0
            if centered:
                mean[r] = Rows[0, row + r, 0] + X[row + r, 0]
                scale[r] = Rows[1, row + r, 0]
        T.clear(sums)
        T.clear(squares)
        T.clear(dots)
        for k in T.serial(pieces):
            add(X, weight, DY, DX, row, rows, k * block_columns, block_columns, mean, squares, dots, sums)
        if end < n:
            add(X, weight, DY, DX, row, rows, end, n % block_columns, mean, squares, dots, sums)
        if centered:
            T.reduce_sum(sums, across, dim=1)
            for r in T.Parallel(rows):
                across[r] /= n
        else:
            T.reduce_sum(squares, scale, dim=1)
            for r in T.Parallel(rows):
                scale[r] = T.rsqrt(scale[r] / n + eps)
        if activation == "silu":
            for k in T.serial(pieces):
                add_dots(X, weight, DY, row, rows, k * block_columns, block_columns, scale, dots)
            if end < n:
                add_dots(X, weight, DY, row, rows, end, n % block_columns, scale, dots)
        T.reduce_sum(dots, along, dim=1)
        for r in T.Parallel(rows):
            along[r] *= scale[r] / n
        if kinds > last:
            finish_rows(X, weight, DY, Partial, DX, part, row, rows, n, mean, scale, along, across, True)
        else:
            finish_rows(X, weight, DY, Partial, DX, part, row, rows, n, mean, scale, along, across, False)

    @T.prim_func
    def norm_backward(
        X: T.Tensor((m, n), dtype),
        weight: T.Tensor((n,), dtype),
        DY: T.Tensor((m, n), dtype),
        Rows: T.Tensor((kept, m, 1), "float32"),
        DX: T.Tensor((m, n), dtype),
        Partial: T.Tensor((kinds, parts, n), "float32"),
        eps: T.float32,
    ):
        with T.Kernel(parts, threads=128) as part:
            squares, dots, sums = [T.alloc_fragment((together, block_columns), "float32") for _ in range(3)]
            factors = [T.alloc_fragment((together,), "float32") for _ in range(4)]
            if kinds > last:
                for j in T.Parallel(n):
                    Partial[0, part, j] = 0
                    if centered:
                        Partial[last, part, j] = 0
            operands, kept_sums = (X, weight, DY, Rows, Partial, DX, part), (eps, squares, dots, sums)
            each = T.ceildiv(m, parts)
            first, rows = part * each, T.min(each, m - part * each)
            for turn in T.serial(rows // together):
                differentiate(*operands, first + turn * together, together, *kept_sums, *factors)
            # The last parts may have none: of a number below 0 the remainder would be rows of other parts. A `rows` of at least
            # 0 would hide from the compiler that they are rows of the matrix, and it would ask for each.
            if together > 1 and rows > 0:
                for turn in T.serial(rows % together):
                    differentiate(*operands, first + rows // together * together + turn, 1, *kept_sums, *factors)

    return norm_backward


def norm_backward_long(dtype, block_rows, block_columns, centered, activation):
    """Rows of any length, tile by tile: RMSNorm's r, which it leaves in Rows for `column_sums`; the means of gradients; the
    result."""
    m, n = T.dynamic("m, n")

    @T.prim_func
    def norm_backward(
        X: T.Tensor((m, n), dtype),
        weight: T.Tensor((n,), dtype),
        DY: T.Tensor((m, n), dtype),
        Rows: T.Tensor((2, m, 1), "float32"),
        DX: T.Tensor((m, n), dtype),
        eps: T.float32,
    ):
        with T.Kernel(T.ceildiv(m, block_rows), threads=128) as block:
            x = T.alloc_fragment((block_rows, block_columns), "float32")
            g = T.alloc_fragment((block_rows, block_columns), "float32")
            mean = T.alloc_fragment((block_rows,), "float32")
            scale = T.alloc_fragment((block_rows,), "float32")
            along = T.alloc_fragment((block_rows,), "float32")
            across = T.alloc_fragment((block_rows,), "float32")

            if centered:
                for i in T.Parallel(block_rows):
                    mean[i] = Rows[0, block * block_rows + i, 0] + X[block * block_rows + i, 0]
                    scale[i] = Rows[1, block * block_rows + i, 0]
            else:
                T.clear(mean)
                T.clear(scale)
                for k in T.serial(T.ceildiv(n, block_columns)):
                    T.copy(X[block * block_rows, k * block_columns], x)
                    for i, j in T.Parallel(block_rows, block_columns):
                        x[i, j] *= x[i, j]
                    T.reduce_sum(x, scale, dim=1, clear=False)
                for i in T.Parallel(block_rows):
                    scale[i] = T.rsqrt(scale[i] / n + eps)
                T.copy(scale, Rows[1, block * block_rows : (block + 1) * block_rows, 0])
            T.clear(along)
            T.clear(across)
            for k in T.serial(T.ceildiv(n, block_columns)):
                T.copy(X[block * block_rows, k * block_columns], x)
                T.copy(DY[block * block_rows, k * block_columns], g)
                for i, j in T.Parallel(block_rows, block_columns):
                    x[i, j] = (x[i, j] - mean[i]) * scale[i]
                    factor = T.cast(weight[k * block_columns + j], "float32")
                    if activation == "silu":
                        y = x[i, j] * factor
                        gate = T.sigmoid(y)
                        g[i, j] *= gate * (1 + y * (1 - gate))
                    g[i, j] *= factor  # 0 past n
                    x[i, j] *= g[i, j]
                T.reduce_sum(x, along, dim=1, clear=False)
                if centered:
                    T.reduce_sum(g, across, dim=1, clear=False)
            for i in T.Parallel(block_rows):
                along[i] /= n
                across[i] /= n
            for k in T.serial(T.ceildiv(n, block_columns)):
                for i, j in T.Parallel(block_rows, block_columns):
                    row, column = block * block_rows + i, k * block_columns + j
                    h = (T.cast(X[row, column], "float32") - mean[i]) * scale[i]
                    y = h * weight[column]
                    gate = T.sigmoid(y)
                    slope = gate * (1 + y * (1 - gate)) if activation == "silu" else 1.0
                    rest = T.cast(DY[row, column], "float32") * slope * weight[column] - h * along[i]
                    DX[row, column] = scale[i] * (rest - across[i] if centered else rest)

    return norm_backward


def column_sums(dtype, block_rows, block_columns, centered, activation):
    """What the rows of each part add to dweight and dbias: Partial, (1 or 2, parts, n), as `norm_backward` writes it."""
    m, n, kinds, parts = T.dynamic("m, n, kinds, parts")

    @T.prim_func
    def column_sums(
        X: T.Tensor((m, n), dtype),
        weight: T.Tensor((n,), dtype),
        DY: T.Tensor((m, n), dtype),
        Rows: T.Tensor((2, m, 1), "float32"),
        Partial: T.Tensor((kinds, parts, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, block_columns), parts, threads=128) as (block, part):
            dweight = T.alloc_fragment((block_rows, block_columns), "float32")
            dbias = T.alloc_fragment((block_rows, block_columns), "float32")
            total = T.alloc_fragment((block_columns,), "float32")
            T.clear(dweight)
            T.clear(dbias)
            for turn in T.serial(T.ceildiv(T.ceildiv(m, block_rows) - part, parts)):
                for i, j in T.Parallel(block_rows, block_columns):
                    row, column = (part + turn * parts) * block_rows + i, block * block_columns + j
                    x = T.cast(X[row, column], "float32")
                    h = (x - (Rows[0, row, 0] + X[row, 0]) if centered else x) * Rows[1, row, 0]
                    y = h * weight[column]
                    gate = T.sigmoid(y)
                    slope = gate * (1 + y * (1 - gate)) if activation == "silu" else 1.0
                    g = T.cast(DY[row, column], "float32") * slope
                    dweight[i, j] += g * h
                    if centered:
                        dbias[i, j] += g
            T.reduce_sum(dweight, total, dim=0)
            T.copy(total, Partial[0, part, block * block_columns : (block + 1) * block_columns])
            if centered:
                T.reduce_sum(dbias, total, dim=0)
                T.copy(total, Partial[1, part, block * block_columns : (block + 1) * block_columns])

    return column_sums


def sum_parts(dtype, block_parts, block_columns):
    """Weight = the sum of Partial[0] over its parts, in one order for each number of them; where there is a second kind, Bias =
    that of Partial[1]."""
    n, others, kinds, parts = T.dynamic("n, others, kinds, parts")

    @T.prim_func
    def sum_parts(
        Partial: T.Tensor((kinds, parts, n), "float32"),
        Weight: T.Tensor((n,), dtype),
        Bias: T.Tensor((others,), dtype),
    ):
        with T.Kernel(T.ceildiv(n, block_columns), kinds, threads=256) as (block, kind):
            T.pdl_sync()
            sums = T.alloc_fragment((block_parts, block_columns), "float32")
            total = T.alloc_fragment((block_columns,), "float32")
            T.clear(sums)
            for k in T.serial(T.ceildiv(parts, block_parts)):
                for p, j in T.Parallel(block_parts, block_columns):
                    sums[p, j] += Partial[kind, k * block_parts + p, block * block_columns + j]
            T.reduce_sum(sums, total, dim=0)
            if kind == 0:
                T.copy(total, Weight[block * block_columns : (block + 1) * block_columns])
            else:
                T.copy(total, Bias[block * block_columns : (block + 1) * block_columns])

    return sum_parts


def softmax_backward(dtype, block_rows, block_columns, threads):
    """Rows of up to `block_columns` elements, kept in registers. Y is the result of softmax."""
    m, n = T.dynamic("m, n")

    @T.prim_func
    def softmax_backward(Y: T.Tensor((m, n), dtype), DY: T.Tensor((m, n), dtype), DX: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(m, block_rows), threads=threads) as block:
            y = T.alloc_fragment((block_rows, block_columns), "float32")
            g = T.alloc_fragment((block_rows, block_columns), "float32")
            dots = T.alloc_fragment((block_rows,), "float32")

            T.copy(Y[block * block_rows, 0], y)
            T.copy(DY[block * block_rows, 0], g)
            for i, j in T.Parallel(block_rows, block_columns):
                g[i, j] *= y[i, j]  # 0 past n
            T.reduce_sum(g, dots, dim=1)
            for i, j in T.Parallel(block_rows, block_columns):
                DX[block * block_rows + i, j] = g[i, j] - y[i, j] * dots[i]

    return softmax_backward


def softmax_backward_long(dtype, block_columns, threads):
    """Rows of any length, read twice; each thread's products in its own sums."""
    m, n = T.dynamic("m, n")

    @T.prim_func
    def softmax_backward(Y: T.Tensor((m, n), dtype), DY: T.Tensor((m, n), dtype), DX: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=threads) as row:
            products = T.alloc_fragment((block_columns,), "float32")
            dot = T.alloc_fragment((1,), "float32")

            T.clear(products)
            for k in T.serial(T.ceildiv(n, block_columns)):
                for j in T.Parallel(block_columns):
                    column = k * block_columns + j
                    products[j] += T.cast(Y[row, column], "float32") * DY[row, column]
            T.reduce_sum(products, dot)
            for k in T.serial(T.ceildiv(n, block_columns)):
                for j in T.Parallel(block_columns):
                    column = k * block_columns + j
                    DX[row, column] = T.cast(Y[row, column], "float32") * (DY[row, column] - dot[0])

    return softmax_backward


def softmax_backward_cached(dtype, block_rows, block_columns, second_pass):
    """For CPUs: `block_rows` rows one after the other, in pieces whose sums stay in registers. `second_pass` over a row:
    "forwards"; "backwards", from what the first one read last and a cache smaller than the row still holds; "joined" to the
    first one over the next row, so that the caches are never idle."""
    m, n = T.dynamic("m, n")

    @T.macro
    def add(Y, DY, row, column, count, products):
        for j in T.Parallel(count):
            products[j] += T.cast(Y[row, column + j], "float32") * DY[row, column + j]

    @T.macro
    def finish(Y, DY, DX, row, column, count, dot):
        for j in T.Parallel(count):
            DX[row, column + j] = T.cast(Y[row, column + j], "float32") * (DY[row, column + j] - dot)

    @T.macro
    def add_row(Y, DY, row, products, dot):
        T.clear(products)
        for k in T.serial(n // block_columns):
            add(Y, DY, row, k * block_columns, block_columns, products)
        if n % block_columns > 0:
            add(Y, DY, row, n // block_columns * block_columns, n % block_columns, products)
        T.reduce_sum(products, dot)

    @T.macro
    def finish_row(Y, DY, DX, row, dot):
        for k in T.serial(n // block_columns):
            finish(Y, DY, DX, row, k * block_columns, block_columns, dot[0])
        if n % block_columns > 0:
            finish(Y, DY, DX, row, n // block_columns * block_columns, n % block_columns, dot[0])

    @T.macro
    def finish_row_backwards(Y, DY, DX, row, dot):
        if n % block_columns > 0:
            finish(Y, DY, DX, row, n // block_columns * block_columns, n % block_columns, dot[0])
        for k in T.serial(n // block_columns):
            finish(Y, DY, DX, row, (n // block_columns - 1 - k) * block_columns, block_columns, dot[0])

    @T.macro
    def finish_row_and_add_next(Y, DY, DX, row, products, dot):
        T.clear(products)
        for k in T.serial(n // block_columns):
            finish(Y, DY, DX, row, k * block_columns, block_columns, dot[0])
            add(Y, DY, row + 1, k * block_columns, block_columns, products)
        if n % block_columns > 0:
            finish(Y, DY, DX, row, n // block_columns * block_columns, n % block_columns, dot[0])
            add(Y, DY, row + 1, n // block_columns * block_columns, n % block_columns, products)
        T.reduce_sum(products, dot)

    @T.prim_func
    def softmax_backward(Y: T.Tensor((m, n), dtype), DY: T.Tensor((m, n), dtype), DX: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(m, block_rows), threads=128) as block:
            products = T.alloc_fragment((block_columns,), "float32")
            dot = T.alloc_fragment((1,), "float32")
            first = block * block_rows
            rows = T.min(block_rows, m - first)
            if second_pass == "joined":
                add_row(Y, DY, first, products, dot)
                for i in T.serial(rows - 1):
                    finish_row_and_add_next(Y, DY, DX, first + i, products, dot)
                finish_row(Y, DY, DX, first + rows - 1, dot)
            else:
                for i in T.serial(rows):
                    add_row(Y, DY, first + i, products, dot)
                    if second_pass == "backwards":
                        finish_row_backwards(Y, DY, DX, first + i, dot)
                    else:
                        finish_row(Y, DY, DX, first + i, dot)

    return softmax_backward
