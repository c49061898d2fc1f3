"""Gradients of the weights of groups in tile language: DW[g] = X[rows of g].T @ DY[rows of g].

X: (tokens, k), DY: (tokens, n), rows sorted by group; starts: (groups + 1,), group g has rows starts[g] to starts[g + 1]; DW:
(groups, k, n), 0 for a group without rows. Sums in float32, rounded once. The gradient of X is a product of groups itself.
"""

import tilelang.language as T


def starts(dtype):
    """Where groups begin and the last one ends: sizes are clamped to the rows there are, as forward."""
    groups, ends = T.dynamic("groups"), T.dynamic("ends")

    @T.prim_func
    def starts(sizes: T.Tensor((groups,), dtype), starts: T.Tensor((ends,), "int32"), tokens: T.int32):
        with T.Kernel(1, threads=32):
            row = T.alloc_var("int32", init=0)
            starts[0] = 0
            for g in T.serial(groups):
                row = row + T.clamp(T.cast(sizes[g], "int32"), 0, tokens - row)
                starts[g + 1] = row

    return starts


def weight_gradient(dtype, block_k, block_n, block_t, stages, threads, panel):
    """One block for each tile of a group's gradient: its rows by `block_t`, at last those that fill no step, beside zeros, as
    what other groups hold may be infinite."""
    tokens, k, n, groups, ends = (T.dynamic(name) for name in ("tokens", "k", "n", "groups", "ends"))

    @T.prim_func
    def weight_gradient(
        X: T.Tensor((tokens, k), dtype),
        DY: T.Tensor((tokens, n), dtype),
        starts: T.Tensor((ends,), "int32"),
        DW: T.Tensor((groups, k, n), dtype),
    ):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(k, block_k), groups, threads=threads) as (bn, bk, group):
            T.pdl_sync()
            x = T.alloc_shared((block_t, block_k), dtype)
            dy = T.alloc_shared((block_t, block_n), dtype)
            x_rest = T.alloc_shared((block_t, block_k), dtype)
            dy_rest = T.alloc_shared((block_t, block_n), dtype)
            acc = T.alloc_fragment((block_k, block_n), "float32")

            begin, end = starts[group], starts[group + 1]
            whole = (end - begin) // block_t
            T.use_swizzle(max(panel, 1), enable=panel > 0)
            T.clear(acc)
            for step in T.Pipelined(whole, num_stages=stages):
                T.copy(X[begin + step * block_t, bk * block_k], x)
                T.copy(DY[begin + step * block_t, bn * block_n], dy)
                T.gemm(x, dy, acc, transpose_A=True)
            rest = begin + whole * block_t
            if rest < end:
                for t, i in T.Parallel(block_t, block_k):
                    x_rest[t, i] = T.if_then_else(rest + t < end, X[rest + t, bk * block_k + i], T.cast(0, dtype))
                for t, j in T.Parallel(block_t, block_n):
                    dy_rest[t, j] = T.if_then_else(rest + t < end, DY[rest + t, bn * block_n + j], T.cast(0, dtype))
                T.gemm(x_rest, dy_rest, acc, transpose_A=True)
            T.copy(acc, DW[group, bk * block_k : (bk + 1) * block_k, bn * block_n : (bn + 1) * block_n])

    return weight_gradient
