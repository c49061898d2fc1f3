"""A slice that runs backwards."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        tile = T.alloc_shared((64,), "float32")
        T.copy(A[::-1], tile)


# --- what the user sees
# InvalidArgument: [TL117] the slice of A in dimension 0 has an impossible step
#   --> negative_slice_step.py:10   T.copy(A[::-1], tile)
#   found:    step -1
#   expected: a positive integer known at compile time
#   try:      use T.Parallel with the index you mean
