"""A value is assigned to a slice."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=64):
        A[0, :] = 0


# --- what the user sees
# AssignToParameter: [TL107] a region of A is assigned to
#   --> region_assigned.py:9   A[0, :] = 0
#   found:    `A[...] = value` where some dimension is a slice
#   expected: one index per dimension
#   try:      T.copy(src, A[...]) moves a tile, T.fill(A[...], x) sets one, T.Parallel writes elements
