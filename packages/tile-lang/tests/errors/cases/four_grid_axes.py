"""Too many grid axes."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, 2, 3, 4, threads=64):
        T.clear(A)


# --- what the user sees
# InvalidThreads: [TL121] T.Kernel with 4 grid extents
#   --> four_grid_axes.py:8   with T.Kernel(1, 2, 3, 4, threads=64):
#   expected: one to three
#   try:      T.Kernel(grid_x, grid_y)
