"""T.copy of something that is no buffer."""

import tilelang.language as T


@T.prim_func
def store(A: T.Tensor((128,), "float16")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((32,), "float16")
        T.copy(0, tile)


# --- what the user sees
# RuntimeValueNeeded: [TL104] T.copy: the source is no buffer
#   --> copy_of_a_number.py:10   T.copy(0, tile)
#   found:    int 0
#   expected: a buffer, a region A[i0:i1, j0:j1], or an origin A[i, j]
#   try:      pass the tensor or the tile itself
