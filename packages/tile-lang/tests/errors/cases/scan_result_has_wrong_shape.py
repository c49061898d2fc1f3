"""A cumulative sum into a tile of another shape."""

import tilelang.language as T


@T.prim_func
def rows(A: T.Tensor((32, 64), "float32")):
    with T.Kernel(1, threads=128):
        x = T.alloc_shared((32, 64), "float32")
        y = T.alloc_shared((64, 32), "float32")
        T.copy(A, x)
        T.cumsum(x, y, dim=1)


# --- what the user sees
# ReduceShapeMismatch: [TL115] T.cumsum of x: y has another shape
#   --> scan_result_has_wrong_shape.py:12   T.cumsum(x, y, dim=1)
#   found:    (32, 64) and (64, 32)
#   expected: equal shapes
#   try:      allocate y with shape (32, 64)
