"""T.exp of a whole tile."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=64):
        x = T.alloc_fragment((64, 64), "float32")
        T.copy(A, x)
        y = T.exp(x)


# --- what the user sees
# RuntimeValueNeeded: [TL104] T.exp of a whole tile
#   --> function_of_a_whole_tile.py:11   y = T.exp(x)
#   found:    x: local.fragment (64, 64) float32
#   expected: a scalar
#   try:      write the loop: `for i, j in T.Parallel(...): B[i, j] = T.exp(A[i, j])`
