"""A tuple assignment of another length."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(2, 2, threads=64) as blocks:
        bx, by, bz = blocks
        A[bx] = by


# --- what the user sees
# InvalidArgument: [TL117] a tuple assignment does not fit
#   --> unpacking_does_not_fit.py:9   bx, by, bz = blocks
#   found:    2 values
#   expected: 3
#   try:      match the sides
