"""A tile operator inside T.Parallel."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=64):
        row = T.alloc_shared((64,), "float32")
        for i in T.Parallel(64):
            T.copy(A[i, 0], row)


# --- what the user sees
# TileOperatorInParallel: [TL111] T.copy stands inside T.Parallel
#   --> operator_in_parallel.py:11   T.copy(A[i, 0], row)
#   found:    an operator of the whole block inside a loop whose iterations are spread over its threads
#   expected: elementwise statements only
#   try:      move T.copy before or after the T.Parallel loop, or use T.serial for the loop
