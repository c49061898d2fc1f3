"""The reverse: a compile-time value where a run-time one is needed."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=64):
        scale = 0.5
        T.fill(scale, 0)


# --- what the user sees
# RuntimeValueNeeded: [TL104] T.fill: the destination is no buffer
#   --> number_where_a_tile_is_needed.py:10   T.fill(scale, 0)
#   found:    float 0.5
#   expected: a buffer, a region A[i0:i1, j0:j1], or an origin A[i, j]
#   try:      pass the tensor or the tile itself
