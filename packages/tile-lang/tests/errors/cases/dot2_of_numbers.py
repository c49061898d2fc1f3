"""T.dot2 of something that is no word."""

import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((64,), "bfloat16"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1):
        for i in T.Parallel(64):
            B[i] = T.dot2(A[i], A[i], B[i])


# --- what the user sees
# DtypeError: [TL118] T.dot2 of something that is no word of two numbers
#   --> dot2_of_numbers.py:10   B[i] = T.dot2(A[i], A[i], B[i])
#   found:    bfloat16
#   expected: uint32
#   try:      T.view(buffer, shape, "uint32")
