"""An allocation without an element type."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=64):
        tile = T.alloc_shared((64, 64))
        T.copy(A, tile)


# --- what the user sees
# MissingDtype: [TL116] T.alloc_shared names no element type
#   --> allocation_without_dtype.py:9   tile = T.alloc_shared((64, 64))
#   found:    T.alloc_shared(64, 64)
#   expected: a shape and a dtype
#   try:      T.alloc_shared((64, 64), "float16")
