"""T.reshape to another number of elements."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=64):
        flat = T.reshape(A, (4000,))
        T.clear(flat)


# --- what the user sees
# ViewMismatch: [TL123] a view of A asks for another number of bytes
#   --> view_of_another_size.py:9   flat = T.reshape(A, (4000,))
#   found:    shape (4000,) of float32
#   expected: as many bits as A has: shape (64, 64) of float32
#   try:      make the products of shape and width equal
