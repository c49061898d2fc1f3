"""A constant index outside of its dimension."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 32), "float32")):
    with T.Kernel(1, threads=64):
        A[3, 32] = 1


# --- what the user sees
# IndexOutOfRange: [TL110] index 32 is out of range for dimension 1 of A
#   --> index_out_of_range.py:9   A[3, 32] = 1
#   found:    A with shape (64, 32)
#   expected: an index from -32 to 31
#   try:      mend the index, or the shape of the buffer
