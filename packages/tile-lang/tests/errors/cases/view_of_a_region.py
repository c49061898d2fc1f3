"""T.view of a part of a buffer."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=64):
        bits = T.view(A[0:32, :], (32, 64), "int32")
        T.clear(bits)


# --- what the user sees
# ViewMismatch: [TL123] T.view of a region
#   --> view_of_a_region.py:9   bits = T.view(A[0:32, :], (32, 64), "int32")
#   found:    A[0:32, 0:64]
#   expected: a whole buffer
#   try:      take the view first and index it afterwards
