"""A shared tile is allocated inside T.Parallel."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            x = T.alloc_shared((8,), "float32")
            A[i] = x[0]


# --- what the user sees
# InvalidArgument: [TL117] T.alloc_shared stands inside T.Parallel
#   --> allocation_in_parallel.py:10   x = T.alloc_shared((8,), "float32")
#   expected: memory of the block allocated outside of the loop
#   try:      move it before the loop, or use T.alloc_local for memory of one iteration
