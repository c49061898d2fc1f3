"""Matrix products in tile language: C = activation(A @ B + bias).

A: (batch_a, m, k), B: (batch_b, k, n), C: (batch, m, n) with rows of any pitch; a transposed operand is stored with its
last two dimensions exchanged. Operands broadcast without copies (`_matrix`). All extents and pitches are dynamic.
Products are summed in float32 (int32 for int8) and rounded once. A parameter that the flags of a kernel leave unused
takes a tensor of one element.

Bias and activation are decided when a kernel runs, so that one kernel serves layers with and without: `added` is (n,), or
has no element, and `activation` is 0 or one of the numbers below.
"""

import math

import tilelang.language as T

#: Activations by their places in ACTIVATIONS of problem.py.
RELU, GELU, SILU = 1, 2, 3


def _operand(rows, columns, transposed, dtype, name):
    """A parameter of matrices (batch, rows, columns), contiguous along one of the two."""
    batch, plane, pitch = T.dynamic(f"batch_{name}"), T.dynamic(f"plane_{name}"), T.dynamic(f"pitch_{name}")
    shape = (batch, columns, rows) if transposed else (batch, rows, columns)
    return T.StridedTensor(shape, (plane, pitch, 1), dtype)


def _result(batch, m, n, dtype):
    plane, pitch = T.dynamic("plane"), T.dynamic("pitch")
    return T.StridedTensor((batch, m, n), (plane, pitch, 1), dtype)


def _bias(dtype):
    """The parameter `added`: as many numbers as C has columns, or none; `dtype` None: unused."""
    return T.Tensor((T.dynamic("added_n") if dtype else 1,), dtype or "float32")


def _scales(scales, shape, name):
    """Scales of rows (or, by strides of 0, of all) or of blocks; `scales` None: unused."""
    if scales == "rows":
        return T.StridedTensor(shape[:1], (T.dynamic(f"step_{name}"),), "float32")
    if scales == "blocks":
        return T.StridedTensor(shape, (T.dynamic(f"step_{name}"), 1), "float32")
    return T.Tensor((1,), "float32")


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


@T.macro
def _scale(total, sums, scale_a, scale_b, row, column):
    """total = sums times the scales of their rows and columns, of which `row` and `column` are the first: those of the columns
    wait in shared memory, and each kind has a loop of its own, as registers have no room for the factors beside the sums."""
    across = T.alloc_shared((total.shape[1],), "float32")
    T.copy(scale_b[column], across)
    for i, j in T.Parallel(*total.shape):
        total[i, j] = T.cast(sums[i, j], "float32") * scale_a[row + i]
    for i, j in T.Parallel(*total.shape):
        total[i, j] *= across[j]


@T.macro
def _add(total, added, column):
    """total += the bias of its columns, the first of which is `column`: each number waits in shared memory for all rows."""
    if added.shape[0] > 0:
        row = T.alloc_shared((total.shape[1],), added.dtype)
        T.copy(added[column], row)
        for i, j in T.Parallel(*total.shape):
            total[i, j] += T.cast(row[j], "float32")


def _relu(x):
    return T.if_then_else(x <= 0.0, 0.0, x)  # NaN stays


def _gelu(x):
    return 0.5 * x * (1.0 + T.erf(x * math.sqrt(0.5)))


def _silu(x):
    return x * T.sigmoid(x)


@T.macro
def _activate(total, activation):
    """total = activation(total)."""
    if activation == RELU:
        for i, j in T.Parallel(*total.shape):
            total[i, j] = _relu(total[i, j])
    elif activation == GELU:
        for i, j in T.Parallel(*total.shape):
            total[i, j] = _gelu(total[i, j])
    elif activation == SILU:
        for i, j in T.Parallel(*total.shape):
            total[i, j] = _silu(total[i, j])


@T.macro
def _slopes(total, activation):
    """total = the derivative of the activation there."""
    if activation == RELU:
        for i, j in T.Parallel(*total.shape):
            total[i, j] = T.if_then_else(total[i, j] <= 0.0, 0.0, 1.0)  # as torch: 1 for NaN
    elif activation == GELU:
        for i, j in T.Parallel(*total.shape):
            density = T.exp(-0.5 * total[i, j] * total[i, j]) / math.sqrt(2 * math.pi)
            total[i, j] = 0.5 * (1.0 + T.erf(total[i, j] * math.sqrt(0.5))) + total[i, j] * density
    elif activation == SILU:
        for i, j in T.Parallel(*total.shape):
            share = T.sigmoid(total[i, j])
            total[i, j] = share * (1.0 + total[i, j] * (1.0 - share))


@T.macro
def _multiply(total, G, z, row, column):
    """total *= its tile of G."""
    factor = T.alloc_fragment(total.shape, G.dtype)
    T.copy(G[z, row, column], factor, eviction_policy="evict_first")
    for i, j in T.Parallel(*total.shape):
        total[i, j] *= T.cast(factor[i, j], "float32")


def _padded(shape, dtype, pad):
    """A shared tile, the rows of which lie `pad` elements apart."""
    rows, columns = shape
    tile = T.alloc_shared((rows, columns + pad), dtype)
    return tile[0:rows, 0:columns] if pad else tile


def matmul(
    dtype,
    out_dtype,
    transpose_a,
    transpose_b,
    batch_a,
    batch_b,
    scales,
    bias,
    gradient,
    block_m,
    block_n,
    block_k,
    stages,
    threads,
    panel,
    pad=0,
):
    """One block for each tile of C.

    `scales` None, "rows" (scale_a (m,), scale_b (n,)) or "blocks" (scale_a (m, k / 128), scale_b (k / 128, n / 128); sums
    of 128 products are scaled and added); `bias` the type of the vector, None for integers, which have neither bias nor
    activation. With `gradient` C is G * the slope of the activation at A @ B + bias. `pad` elements lie between the rows of the
    block's copy of B.
    """
    batch, m, n, k = T.dynamic("batch"), T.dynamic("m"), T.dynamic("n"), T.dynamic("k")
    deep, wide = T.dynamic("deep"), T.dynamic("wide")
    sums = "int32" if dtype == "int8" else "float32"
    parts = scales == "blocks"
    kept = "float32" if scales else sums

    @T.prim_func
    def matmul(
        A: _operand(m, k, transpose_a, dtype, "a"),
        B: _operand(k, n, transpose_b, dtype, "b"),
        scale_a: _scales(scales, (m, deep), "a"),
        scale_b: _scales(scales, (n,) if scales == "rows" else (deep, wide), "b"),
        added: _bias(bias),
        G: T.Tensor((batch, m, n), out_dtype) if gradient else _bias(None),
        C: _result(batch, m, n, out_dtype),
        repeat: T.int32,
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(m, block_m), batch, threads=threads) as (bn, bm, z):
            if not gradient:
                T.pdl_sync()
            A_tile = T.alloc_shared(_tile(block_m, block_k, transpose_a), dtype)
            B_tile = _padded(_tile(block_k, block_n, transpose_b), dtype, pad)
            acc = T.alloc_fragment((block_m, block_n), sums)

            T.use_swizzle(max(panel, 1), enable=panel > 0)
            if parts:
                part = T.alloc_fragment((block_m, block_n), sums)
            T.clear(acc)
            for step in T.Pipelined(T.ceildiv(k, block_k), num_stages=stages):
                _load(A, _matrix(A, batch_a, z, repeat), bm * block_m, step * block_k, transpose_a, A_tile)
                _load(B, _matrix(B, batch_b, z, repeat), step * block_k, bn * block_n, transpose_b, B_tile)
                if parts:
                    T.gemm(A_tile, B_tile, part, transpose_A=transpose_a, transpose_B=transpose_b, clear_accum=True)
                    for i, j in T.Parallel(block_m, block_n):
                        across = scale_b[step, (bn * block_n + j) // 128]
                        acc[i, j] += part[i, j] * (scale_a[bm * block_m + i, step] * across)
                else:
                    T.gemm(A_tile, B_tile, acc, transpose_A=transpose_a, transpose_B=transpose_b)
            total = acc if kept == sums else T.alloc_fragment((block_m, block_n), kept)
            if scales == "rows":
                _scale(total, acc, scale_a, scale_b, bm * block_m, bn * block_n)
            if bias:
                _add(total, added, bn * block_n)
                if gradient:
                    _slopes(total, activation)
                    _multiply(total, G, z, bm * block_m, bn * block_n)
                else:
                    _activate(total, activation)
            T.copy(total, C[z, bm * block_m, bn * block_n])

    return matmul


def transpose(dtype, edge=64):
    """B = A with rows for columns: matrices whose columns are contiguous get rows that are."""
    batch, m, k = T.dynamic("batch"), T.dynamic("m"), T.dynamic("k")

    @T.prim_func
    def transpose(
        A: T.StridedTensor((batch, k, m), (T.dynamic("plane_a"), T.dynamic("pitch_a"), 1), dtype),
        B: T.StridedTensor((batch, m, k), (T.dynamic("plane_b"), T.dynamic("pitch_b"), 1), dtype),
    ):
        with T.Kernel(T.ceildiv(k, edge), T.ceildiv(m, edge), batch, threads=256) as (x, y, z):
            T.pdl_sync()
            tile = T.alloc_shared((edge, edge), dtype)
            T.copy(A[z, x * edge, y * edge], tile)
            for i, j in T.Parallel(edge, edge):
                B[z, y * edge + i, x * edge + j] = tile[j, i]

    return transpose


def whole_rows(dtype, block_m=32, block_n=128):
    """B = A with zeros behind its rows and columns, or less of it where B is smaller: rows that begin anywhere get places at
    multiples of 16 bytes, or come back from there."""

    @T.prim_func
    def whole_rows(
        A: T.StridedTensor(
            (1, *T.dynamic("rows_a, columns_a")), (T.dynamic("plane_a"), T.dynamic("pitch_a"), 1), dtype
        ),
        B: T.StridedTensor(
            (1, *T.dynamic("rows_b, columns_b")), (T.dynamic("plane_b"), T.dynamic("pitch_b"), 1), dtype
        ),
    ):
        with T.Kernel(T.ceildiv(B.shape[2], block_n), T.ceildiv(B.shape[1], block_m), threads=128) as (x, y):
            T.pdl_sync()
            tile = T.alloc_fragment((block_m, block_n), dtype)
            T.copy(A[0, y * block_m, x * block_n], tile)
            T.copy(tile, B[0, y * block_m, x * block_n])

    return whole_rows


def _tile_at(number, rows, columns, panel):
    """(row, column) of a tile of a grid: panels of `panel` rows of tiles, each walked column by column, so that neighbours
    in time share operands in the L2 cache."""
    above = number // (panel * columns) * panel
    inside = number % (panel * columns)
    height = T.max(T.min(rows - above, panel), 1)
    return above + inside % height, inside // height


def split_matmul(
    dtype,
    out_dtype,
    transpose_a,
    transpose_b,
    bias,
    block_m,
    block_n,
    block_k,
    stages,
    threads,
    panel,
    blocks,
    staged,
):
    """The first `whole` tiles of C; sums over parts of k of the others, which `finish` adds.

    A part has `each` steps along k, the last part of a tile the rest; partial[p * cut + t - whole] is part p of tile t,
    where `cut` tiles are in parts: blocks that are neighbours work on the same part of k and share operands.
    For products with a remainder of tiles that fills a part of the chip. A block for each tile and part, or `blocks` that
    work through all of them, `staged` as in `staying_matmul`.
    """
    batch, m, n, k = T.dynamic("batch"), T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def split_matmul(
        A: _operand(m, k, transpose_a, dtype, "a"),
        B: _operand(k, n, transpose_b, dtype, "b"),
        added: _bias(bias),
        partial: T.Tensor((T.dynamic("pieces"), block_m, block_n), "float32"),
        C: _result(batch, m, n, out_dtype),
        whole: T.int32,
        parts: T.int32,
        each: T.int32,
        activation: T.int32,
    ):
        with T.Kernel(blocks or whole + partial.shape[0], threads=threads) as block:
            T.pdl_sync()
            A_tile = T.alloc_shared(_tile(block_m, block_k, transpose_a), dtype)
            B_tile = T.alloc_shared(_tile(block_k, block_n, transpose_b), dtype)
            if staged:
                C_tile = T.alloc_shared((block_m, block_n), out_dtype)
            acc = T.alloc_fragment((block_m, block_n), "float32")

            rows, columns, steps = T.ceildiv(m, block_m), T.ceildiv(n, block_n), T.ceildiv(k, block_k)
            cut = rows * columns - whole  # tiles in parts
            for item in T.Persistent(whole + cut * parts, blocks, block) if blocks else (block,):
                piece = T.max(item - whole, 0)
                tile = T.min(item, whole + piece % T.max(cut, 1))
                first = piece // T.max(cut, 1) * each
                bm, bn = _tile_at(tile, rows, columns, panel)
                T.clear(acc)
                for step in T.Pipelined(
                    T.if_then_else(item < whole, steps, T.min(each, steps - first)), num_stages=stages
                ):
                    at = (first + step) * block_k
                    _load(A, 0, bm * block_m, at, transpose_a, A_tile)
                    _load(B, 0, at, bn * block_n, transpose_b, B_tile)
                    T.gemm(A_tile, B_tile, acc, transpose_A=transpose_a, transpose_B=transpose_b)
                if item >= whole:
                    T.copy(acc, partial[piece, 0, 0])
                else:
                    _add(acc, added, bn * block_n)
                    _activate(acc, activation)
                    if staged:
                        T.copy(acc, C_tile)
                        T.copy(C_tile, C[0, bm * block_m, bn * block_n])
                    else:
                        T.copy(acc, C[0, bm * block_m, bn * block_n])

    return split_matmul


def finish(out_dtype, bias, block_m, block_n, panel, together=4):
    """C = activation(bias + the parts, added in their order), for the tiles that `split_matmul` left in parts.

    On sm_90a it is launched before that has ended, and waits. The loads of `together` parts are on their way at once.
    """
    rows, threads = (4, 128) if block_n % 32 == 0 else (8, 2 * block_n)  # each thread as many numbers as the others
    batch, m, n = T.dynamic("batch"), T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def finish(
        partial: T.Tensor((T.dynamic("pieces"), block_m, block_n), "float32"),
        added: _bias(bias),
        C: _result(batch, m, n, out_dtype),
        whole: T.int32,
        parts: T.int32,
        activation: T.int32,
    ):
        with T.Kernel(block_m // rows, partial.shape[0] // parts, threads=threads) as (strip, tile):
            total = T.alloc_fragment((rows, block_n), "float32")
            bm, bn = _tile_at(whole + tile, T.ceildiv(m, block_m), T.ceildiv(n, block_n), panel)
            row = bm * block_m + strip * rows
            T.pdl_sync()
            if row < m:
                T.clear(total)
                for group in T.serial(T.ceildiv(parts, together)):
                    for i, j in T.Parallel(rows, block_n):
                        for u in T.unroll(together):
                            p = group * together + u
                            part = partial[
                                T.min(p, parts - 1) * (partial.shape[0] // parts) + tile, strip * rows + i, j
                            ]
                            total[i, j] += T.if_then_else(p < parts, part, 0.0)
                _add(total, added, bn * block_n)
                _activate(total, activation)
                T.copy(total, C[0, row, bn * block_n])

    return finish


def staying_matmul(
    dtype,
    out_dtype,
    transpose_a,
    transpose_b,
    scales,
    bias,
    block_m,
    block_n,
    block_k,
    stages,
    threads,
    panel,
    blocks,
    staged,
):
    """`blocks` blocks that work through all tiles of C: the loads of a tile begin while the one before is stored, with
    `staged` through shared memory and in bulk. `scales`: None or "rows", as in `matmul`."""
    batch, m, n, k = T.dynamic("batch"), T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def staying_matmul(
        A: _operand(m, k, transpose_a, dtype, "a"),
        B: _operand(k, n, transpose_b, dtype, "b"),
        scale_a: _scales(scales, (m,), "a"),
        scale_b: _scales(scales, (n,), "b"),
        added: _bias(bias),
        C: _result(batch, m, n, out_dtype),
        activation: T.int32,
    ):
        with T.Kernel(blocks, threads=threads) as block:
            T.pdl_sync()
            A_tile = T.alloc_shared(_tile(block_m, block_k, transpose_a), dtype)
            B_tile = T.alloc_shared(_tile(block_k, block_n, transpose_b), dtype)
            if staged:
                C_tile = T.alloc_shared((block_m, block_n), out_dtype)
            acc = T.alloc_fragment((block_m, block_n), "float32")

            tiles = [T.ceildiv(m, block_m), T.ceildiv(n, block_n)]
            for bm, bn in T.Persistent(tiles, blocks, block, panel):
                row, column = bm * block_m, bn * block_n
                T.clear(acc)
                for step in T.Pipelined(T.ceildiv(k, block_k), num_stages=stages):
                    _load(A, 0, row, step * block_k, transpose_a, A_tile)
                    _load(B, 0, step * block_k, column, transpose_b, B_tile)
                    T.gemm(A_tile, B_tile, acc, transpose_A=transpose_a, transpose_B=transpose_b)
                if scales:
                    _scale(acc, acc, scale_a, scale_b, row, column)
                _add(acc, added, column)
                _activate(acc, activation)
                if staged:
                    T.copy(acc, C_tile)
                    T.copy(C_tile, C[0, row, column])
                else:
                    T.copy(acc, C[0, row, column])

    return staying_matmul


def combine(out_dtype, bias, block_n):
    """C = activation(bias + the parts, added in their order)."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def combine(
        partial: T.Tensor((T.dynamic("splits"), m, n), "float32"),
        added: _bias(bias),
        C: _result(1, m, n, out_dtype),
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n), m, threads=128) as (bn, row):
            T.pdl_sync()
            total = T.alloc_fragment((1, block_n), "float32")
            T.clear(total)
            for s in T.serial(partial.shape[0]):
                for i, j in T.Parallel(1, block_n):
                    total[i, j] += partial[s, row, bn * block_n + j]
            _add(total, added, bn * block_n)
            _activate(total, activation)
            T.copy(total, C[0, row, bn * block_n])

    return combine


def scaled(out_dtype, bias, block_m, block_n):
    """C = activation(scale_a * scale_b * the sums + bias), of sums in int32; a row at a time."""
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def scaled(
        sums: T.Tensor((1, m, n), "int32"),
        scale_a: _scales("rows", (m,), "a"),
        scale_b: _scales("rows", (n,), "b"),
        added: _bias(bias),
        C: _result(1, m, n, out_dtype),
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(m, block_m), threads=128) as (bn, bm):
            across = T.alloc_shared((block_n,), "float32")
            total = T.alloc_fragment((1, block_n), "float32")
            T.copy(scale_b[bn * block_n], across)
            for i in T.serial(T.min(block_m, m - bm * block_m)):
                row, column = bm * block_m + i, bn * block_n
                for r, j in T.Parallel(1, block_n):
                    total[r, j] = T.cast(sums[0, row, column + j], "float32") * scale_a[row] * across[j]
                _add(total, added, column)
                _activate(total, activation)
                T.copy(total, C[0, row, column])

    return scaled


def gemv(dtype, out_dtype, bias, rows, block_n, block_k, lanes, vector, threads):
    """C = activation(A @ B + bias) for up to `rows` rows of A and a transposed B (a layer's weight), by multiplications.

    A block reads `block_n` rows of the weight once, straight to registers, `block_k` elements at a time. Each of `lanes`
    keeps its own sum of the elements that it reads, `vector` neighbours at once; one reduction adds them at the end.
    """
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def gemv(
        A: _operand(m, k, False, dtype, "a"),
        B: _operand(k, n, True, dtype, "b"),
        added: _bias(bias),
        C: _result(1, m, n, out_dtype),
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n), threads=threads) as bn:
            weight = T.alloc_fragment((block_n, block_k), dtype)
            x = T.alloc_fragment((rows, block_k), dtype)
            sums = T.alloc_fragment((rows, block_n, lanes), "float32")
            total = T.alloc_fragment((rows, block_n), "float32")

            T.clear(sums)
            for step in T.serial(T.ceildiv(k, block_k)):
                T.copy(B[0, bn * block_n, step * block_k], weight, eviction_policy="evict_first")
                T.copy(A[0, 0, step * block_k], x)
                for r, i, j in T.Parallel(rows, block_n, lanes):
                    for v in T.serial(block_k // lanes):
                        at = v // vector * (lanes * vector) + j * vector + v % vector
                        sums[r, i, j] += T.cast(weight[i, at], "float32") * T.cast(x[r, at], "float32")
            T.reduce_sum(sums, total, dim=2)
            _add(total, added, bn * block_n)
            _activate(total, activation)
            T.copy(total, C[0, 0, bn * block_n])

    return gemv


def _dot(load, x, row, places):
    """The sum of load(place) * x[row, place] over `places`, which Python lists: one chain of additions, no loop."""
    total = 0.0
    for place in places:
        total = T.cast(load(place), "float32") * x[row, place] + total
    return total


def gemv_rows(dtype, out_dtype, bias, rows, block_n, block_k, lanes, ahead):
    """`gemv` for CPUs: `block_n` rows of the weight are read at once, straight from memory, `block_k` elements a step, while
    those `ahead` (0: none) are fetched.

    Each element of the weight is loaded once for all rows of A. Of a row's sum each of `lanes` keeps a part.
    """
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def gemv_rows(
        A: _operand(m, k, False, dtype, "a"),
        B: _operand(k, n, True, dtype, "b"),
        added: _bias(bias),
        C: _result(1, m, n, out_dtype),
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n), threads=1) as bn:
            sums = T.alloc_fragment((rows, block_n, lanes), "float32")
            total = T.alloc_fragment((rows, block_n), "float32")

            _has_operands(A, B)
            _sum_rows(A, B, 0, 0, sums, bn * block_n, block_k, ahead)
            T.reduce_sum(sums, total, dim=2)
            _add(total, added, bn * block_n)
            _activate(total, activation)
            T.copy(total, C[0, 0, bn * block_n])

    return gemv_rows


@T.macro
def _sum_rows(A, B, of_a, of_b, sums, row, block_k, ahead):
    """sums[r, i] = op(A)[r] * op(B)[:, row + i] in parts for each lane, of matrices `of_a` and `of_b`; B is transposed."""
    rows, block_n, lanes = sums.shape
    n, k = B.shape[1:]
    x = T.alloc_fragment((rows, block_k), "float32")
    T.clear(sums)
    whole = k // block_k
    for step in T.serial(whole):
        T.copy(A[of_a, 0, step * block_k], x)
        if ahead:
            next_k = step * block_k + ahead
            T.prefetch(B[of_b, row : row + block_n, next_k : next_k + block_k])
        for i, j in T.Parallel(block_n, lanes):
            for r in T.serial(rows):
                sums[r, i, j] += _dot(
                    lambda at: B[of_b, row + i, step * block_k + at],
                    x,
                    r,
                    [v * lanes + j for v in range(block_k // lanes)],
                )
    if k % block_k > 0:
        for part in T.serial(k % block_k // lanes):
            _add_lanes(A, B, of_a, of_b, sums, row, whole * block_k + part * lanes)
        if (k % lanes > 0) & (k >= lanes):
            _add_last(A, B, of_a, of_b, sums, row, k - lanes, lanes - k % lanes)
        if k < lanes:
            for i, j in T.Parallel(block_n, lanes):
                if (row + i < n) & (j < k):
                    for r in T.serial(rows):
                        weight = T.cast(B[of_b, row + i, j], "float32")
                        sums[r, i, j] += weight * T.cast(A[of_a, r, j], "float32")


@T.macro
def _add_lanes(A, B, of_a, of_b, sums, row, at):
    """sums[r, i, j] += A[r, at + j] * B[row + i, at + j]."""
    rows, block_n, lanes = sums.shape
    T.assume((at >= 0) & (at + lanes <= A.shape[2]))
    x = T.alloc_fragment((rows, lanes), "float32")
    T.copy(A[of_a, 0, at], x)
    for i, j in T.Parallel(block_n, lanes):
        for r in T.serial(rows):
            sums[r, i, j] += T.cast(B[of_b, row + i, at + j], "float32") * x[r, j]


@T.macro
def _add_last(A, B, of_a, of_b, sums, row, at, first):
    """`_add_lanes` for j >= first. What lies before is read too, and may be infinite."""
    rows, block_n, lanes = sums.shape
    T.assume((at >= 0) & (at + lanes <= A.shape[2]))
    x = T.alloc_fragment((rows, lanes), "float32")
    weight = T.alloc_fragment((block_n, lanes), "float32")
    T.copy(A[of_a, 0, at], x)
    T.copy(B[of_b, row, at], weight)
    for r, j in T.Parallel(rows, lanes):
        x[r, j] = T.if_then_else(j >= first, x[r, j], 0.0)
    for i, j in T.Parallel(block_n, lanes):
        for r in T.serial(rows):
            sums[r, i, j] += T.if_then_else(j >= first, weight[i, j], 0.0) * x[r, j]


@T.macro
def _has_operands(A, B):
    """That there are a row of A and a matrix B: nothing then asks for each element whether it is there."""
    T.assume((A.shape[0] > 0) & (A.shape[1] > 0) & (B.shape[0] > 0))


@T.macro
def _add_columns(A, B, of_a, of_b, sums, first, count, column, block_k):
    """sums[r, j] += A[r, i] * B[i, column + j] for `first <= i < first + count`, of matrices `of_a` and `of_b`.

    `block_k` rows of B are read at once, straight from memory, each element once for all rows of A, and what they add to a sum
    takes one load and one store of it. Past B's last column nothing is computed, and that all rows are B's is said: were it
    asked, the columns past the last one would be, too, one by one.
    """
    rows, block_n = sums.shape
    k, n = B.shape[1:]
    x = T.alloc_fragment((rows, block_k), "float32")
    for step in T.serial(count // block_k):
        row = first + step * block_k
        T.assume((row >= 0) & (row + block_k <= k))
        T.copy(A[of_a, 0, row], x)
        for j in T.Parallel(block_n):
            if column + j < n:
                for r in T.serial(rows):
                    sums[r, j] += _dot(lambda at: B[of_b, row + at, column + j], x, r, range(block_k))
    if count % block_k > 0:
        rest = first + count // block_k * block_k
        T.copy(A[of_a, 0, rest], x)
        for v in T.serial(count % block_k):
            T.assume((rest + v >= 0) & (rest + v < k))
            for j in T.Parallel(block_n):
                if column + j < n:
                    for r in T.serial(rows):
                        sums[r, j] += T.cast(B[of_b, rest + v, column + j], "float32") * x[r, v]


def gemv_columns(dtype, out_dtype, bias, rows, block_n, block_k):
    """`gemv` for CPUs and a B whose rows are contiguous."""
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def gemv_columns(
        A: _operand(m, k, False, dtype, "a"),
        B: _operand(k, n, False, dtype, "b"),
        added: _bias(bias),
        C: _result(1, m, n, out_dtype),
        activation: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n), threads=1) as bn:
            _has_operands(A, B)
            sums = T.alloc_fragment((rows, block_n), "float32")
            T.clear(sums)
            _add_columns(A, B, 0, 0, sums, 0, k, bn * block_n, block_k)
            _add(sums, added, bn * block_n)
            _activate(sums, activation)
            T.copy(sums, C[0, 0, bn * block_n])

    return gemv_columns


def gemv_column_parts(dtype, rows, block_n, block_k):
    """`gemv_columns` over parts of k as in `split_matmul`: sums, which `combine` adds."""
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def gemv_column_parts(
        A: _operand(m, k, False, dtype, "a"),
        B: _operand(k, n, False, dtype, "b"),
        partial: T.Tensor((T.dynamic("splits"), m, n), "float32"),
        steps: T.int32,
    ):
        with T.Kernel(T.ceildiv(n, block_n), partial.shape[0], threads=1) as (bn, s):
            _has_operands(A, B)
            sums = T.alloc_fragment((rows, block_n), "float32")
            T.clear(sums)
            first = s * steps * block_k
            _add_columns(A, B, 0, 0, sums, first, T.min(steps * block_k, k - first), bn * block_n, block_k)
            T.copy(sums, partial[s, 0, bn * block_n])

    return gemv_column_parts
