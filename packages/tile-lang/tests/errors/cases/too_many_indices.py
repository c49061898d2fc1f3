"""More indices than dimensions."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 32), "float32")):
    with T.Kernel(1, threads=64):
        A[0, 0, 0] = 1


# --- what the user sees
# IndexOutOfRange: [TL110] A has 2 dimensions and is indexed with 3
#   --> too_many_indices.py:9   A[0, 0, 0] = 1
#   found:    3 indices
#   expected: at most 2, shape (64, 32)
#   try:      drop the surplus indices
