"""A negative grid extent."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(-1, threads=64):
        T.clear(A)


# --- what the user sees
# InvalidThreads: [TL121] a grid extent of T.Kernel is negative
#   --> negative_grid.py:8   with T.Kernel(-1, threads=64):
#   found:    -1
#   expected: 0 or more (0 launches nothing)
#   try:      T.ceildiv(N, block) for N elements in blocks
