"""A sum in T.Parallel: each iteration reads and writes the same element."""

import tilelang
import tilelang.language as T


@T.prim_func
def total(A: T.Tensor((64,), "float32"), S: T.Tensor((1,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            S[0] += A[i]


tilelang.compile(total, execution="interpret")


# --- what the user sees
# ParallelConflict: [TL112] iterations of T.Parallel update the same element of S
#   --> parallel_sum_into_one_place.py:11   S[0] += A[i]
#   found:    the index of S leaves out i, which has 64 iterations, and each of them adds to the old value
#   expected: each iteration of (i) writes an element of its own
#   try:      T.reduce_sum or its kin over a tile, T.atomic_add, or a T.serial loop for i
