"""T.Parallel inside T.Parallel."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            for j in T.Parallel(64):
                A[i, j] = 0


# --- what the user sees
# TileOperatorInParallel: [TL111] T.Parallel stands inside T.Parallel
#   --> parallel_in_parallel.py:10   for j in T.Parallel(64):
#   found:    a loop over threads inside iterations that are threads already
#   expected: one T.Parallel with all extents, or a serial loop inside
#   try:      write `for i, j in T.Parallel(m, n)`, or T.serial for the inner loop
