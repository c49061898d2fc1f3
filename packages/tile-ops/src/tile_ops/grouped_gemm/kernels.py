"""Products of groups of rows with a matrix each, in tile language: a layer of experts.

X: (tokens, k), rows sorted by group; weights: (groups, k, n), each stored (n, k) if `transpose_weights`; Y: (tokens, n);
sizes: (groups,). Which rows a tile has is known on the device alone: `schedule` lists the tiles, `product` works through
the list. Products are summed in float32 and rounded once.
"""

import tilelang.language as T


def schedule(dtype, block_m, chunk=64):
    """slots[s] = (group, first row, end row) of tile s. Rows behind the last group are tiles of group -1; slots that
    are left over have no rows. Sizes are read `chunk` at a time, so that the walk over groups waits for no memory."""
    groups, count = T.dynamic("groups"), T.dynamic("count")

    @T.macro
    def fill(slots, slot, tiles, group, row, end):
        for tile in T.serial(tiles):
            slots[slot + tile, 0] = group
            slots[slot + tile, 1] = T.min(row + tile * block_m, end)
            slots[slot + tile, 2] = end

    @T.prim_func
    def schedule(sizes: T.Tensor((groups,), dtype), slots: T.Tensor((count, 3), "int32"), tokens: T.int32):
        with T.Kernel(1, threads=32):
            known = T.alloc_shared((chunk,), dtype)
            slot = T.alloc_var("int32", init=0)
            row = T.alloc_var("int32", init=0)
            for first in T.serial(T.ceildiv(groups, chunk)):
                T.copy(sizes[first * chunk], known)
                for i in T.serial(T.min(groups - first * chunk, chunk)):
                    rows = T.clamp(T.cast(known[i], "int32"), 0, tokens - row)
                    fill(slots, slot, T.ceildiv(rows, block_m), first * chunk + i, row, row + rows)
                    slot = slot + T.ceildiv(rows, block_m)
                    row = row + rows
            fill(slots, slot, count - slot, -1, row, tokens)

    return schedule


def product(dtype, out_dtype, transpose_weights, block_m, block_n, block_k, stages, threads, panel, copies="both"):
    """One block for each slot and `block_n` columns, `panel` slots side by side (0: one after the other), so that slots of
    a group find its weights in the L2 cache; rows of group -1 become 0. `copies`: "both" operands, X's "rows" alone, or
    "none"."""
    tokens, n, k = T.dynamic("tokens"), T.dynamic("n"), T.dynamic("k")
    groups, plane, pitch = T.dynamic("groups"), T.dynamic("plane"), T.dynamic("pitch")
    shape = (groups, n, k) if transpose_weights else (groups, k, n)

    @T.prim_func
    def product(
        X: T.StridedTensor((tokens, k), (T.dynamic("pitch_x"), 1), dtype),
        weights: T.StridedTensor(shape, (plane, pitch, 1), dtype),
        slots: T.Tensor((T.dynamic("count"), 3), "int32"),
        Y: T.Tensor((tokens, n), out_dtype),
    ):
        with T.Kernel(T.ceildiv(n, block_n), slots.shape[0], threads=threads) as (bn, slot):
            T.pdl_sync()
            if copies != "none":
                X_tile = T.alloc_shared((block_m, block_k), dtype)
            if copies == "both":
                W_tile = T.alloc_shared((block_n, block_k) if transpose_weights else (block_k, block_n), dtype)
            columns = slice(bn * block_n, bn * block_n + block_n)
            acc = T.alloc_fragment((block_m, block_n), "float32")

            T.use_swizzle(max(panel, 1), enable=panel > 0)
            T.clear(acc)
            group, first, end = slots[slot, 0], slots[slot, 1], slots[slot, 2]
            if group >= 0:
                if copies != "both":
                    T.assume((group < weights.shape[0]) & (first >= 0))
                for step in T.Pipelined(T.ceildiv(k, block_k), num_stages=stages):
                    at = slice(step * block_k, step * block_k + block_k)
                    if copies != "none":
                        T.copy(X[first, step * block_k], X_tile)
                    if copies != "both":  # rows behind the slot's are of others, and stay in the block
                        T.gemm(
                            X_tile if copies == "rows" else X[first : first + block_m, at],
                            weights[group, columns, at] if transpose_weights else weights[group, at, columns],
                            acc,
                            transpose_B=transpose_weights,
                        )
                    else:
                        if transpose_weights:
                            T.copy(weights[group, bn * block_n, step * block_k], W_tile)
                        else:
                            T.copy(weights[group, step * block_k, bn * block_n], W_tile)
                        T.gemm(X_tile, W_tile, acc, transpose_B=transpose_weights)
            for i, j in T.Parallel(block_m, block_n):
                if first + i < end:
                    Y[first + i, bn * block_n + j] = acc[i, j]

    return product
