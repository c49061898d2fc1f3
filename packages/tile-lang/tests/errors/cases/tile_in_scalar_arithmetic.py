"""Arithmetic on whole tiles."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=64):
        x = T.alloc_fragment((64, 64), "float32")
        T.copy(A, x)
        y = x * 2
        T.copy(y, B)


# --- what the user sees
# RuntimeValueNeeded: [TL104] a whole tile is an operand of `*`
#   --> tile_in_scalar_arithmetic.py:11   y = x * 2
#   found:    x: local.fragment (64, 64) float32
#   expected: scalars, such as A[i, j]
#   try:      write the loop: `for i, j in T.Parallel(...): C[i, j] = A[i, j] * ...`
