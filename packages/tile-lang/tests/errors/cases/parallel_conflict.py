"""Several iterations of T.Parallel write one place with different values."""

import tilelang
import tilelang.language as T


@T.prim_func
def row_sums(A: T.Tensor((64, 64), "float32"), S: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i, j in T.Parallel(64, 64):
            S[i] = A[i, j]


tilelang.compile(row_sums, execution="interpret")


# --- what the user sees
# ParallelConflict: [TL112] iterations of T.Parallel write the same element of S
#   --> parallel_conflict.py:11   S[i] = A[i, j]
#   found:    the index of S leaves out j, which has 64 iterations, and the value depends on it
#   expected: each iteration of (i, j) writes an element of its own
#   try:      T.reduce_sum or its kin over a tile, T.atomic_add, or a T.serial loop for j
