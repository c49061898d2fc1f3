"""T.copy between two whole buffers of different shapes."""

import tilelang.language as T


@T.prim_func
def load(A: T.Tensor((128, 128), "float16")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((32, 32), "float16")
        T.copy(A, tile)


# --- what the user sees
# CopyShapeMismatch: [TL114] T.copy of A to tile: the shapes differ
#   --> copy_whole_buffers_differ.py:10   T.copy(A, tile)
#   found:    A (128, 128) and tile (32, 32)
#   expected: equal shapes when both sides are whole buffers
#   try:      name the tile's origin: T.copy(A[0, 0], tile), or give a region of slices
