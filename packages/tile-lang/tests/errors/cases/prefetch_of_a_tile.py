"""T.prefetch of a tile on chip."""

import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((64,), "float32")):
    with T.Kernel(1):
        tile = T.alloc_shared((64,), "float32")
        T.copy(A, tile)
        T.prefetch(tile)


# --- what the user sees
# InvalidArgument: [TL117] T.prefetch of a tile on chip
#   --> prefetch_of_a_tile.py:11   T.prefetch(tile)
#   found:    tile of scope shared.dyn
#   expected: a region of a tensor
#   try:      name the tensor that the tile is copied from
