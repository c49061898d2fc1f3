"""An atomic update with a tile of another shape."""

import tilelang.language as T


@T.prim_func
def accumulate(A: T.Tensor((128, 32), "float32")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_fragment((64, 32), "float32")
        T.clear(tile)
        T.atomic_add(A, tile)


# --- what the user sees
# CopyShapeMismatch: [TL114] T.atomic_add: the tiles' shapes differ
#   --> atomic_tiles_differ.py:11   T.atomic_add(A, tile)
#   found:    A[0:128, 0:32] and tile[0:64, 0:32]
#   expected: equal extents apart from 1s
#   try:      give the destination as an origin A[i, j]
