"""A grid extent from `/`."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(64 / 16, threads=64):
        T.clear(A)


# --- what the user sees
# InvalidThreads: [TL121] a grid extent of T.Kernel is no integer
#   --> grid_with_a_float.py:8   with T.Kernel(64 / 16, threads=64):
#   found:    4.0
#   expected: integers or integer expressions
#   try:      use T.ceildiv(N, block) instead of N / block
