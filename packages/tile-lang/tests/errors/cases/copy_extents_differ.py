"""T.copy between a region and a tile of another size."""

import tilelang.language as T


@T.prim_func
def load(A: T.Tensor((128, 128), "float16")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((32, 32), "float16")
        T.copy(A[0:32, 0:48], tile)


# --- what the user sees
# CopyShapeMismatch: [TL114] T.copy of A to tile: the extents cannot match
#   --> copy_extents_differ.py:10   T.copy(A[0:32, 0:48], tile)
#   found:    (32, 48) and (32, 32)
#   expected: the same extents in the same order, apart from extents of 1
#   try:      give one side as an origin (A[i, j]); it takes the other side's extents
