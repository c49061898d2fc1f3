"""T.copy of a matrix to an origin in a vector."""

import tilelang.language as T


@T.prim_func
def store(A: T.Tensor((128,), "float16")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((32, 32), "float16")
        T.clear(tile)
        T.copy(tile, A[0])


# --- what the user sees
# CopyShapeMismatch: [TL114] T.copy: the origin in A has fewer dimensions than the tile
#   --> copy_origin_has_too_few_dimensions.py:11   T.copy(tile, A[0])
#   found:    1 index for a tile of shape (32, 32)
#   expected: 2 dimensions, or a tile whose leading extents are 1
#   try:      index A as a region with slices
