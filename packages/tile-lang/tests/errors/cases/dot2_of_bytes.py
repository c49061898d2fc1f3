"""T.dot2 of a type of which a word holds four numbers."""

import tilelang.language as T


@T.prim_func
def main(A: T.Tensor((64,), "uint32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1):
        for i in T.Parallel(64):
            B[i] = T.dot2(A[i], A[i], B[i], dtype="int8")


# --- what the user sees
# DtypeError: [TL118] T.dot2 of a type of which no word holds two numbers
#   --> dot2_of_bytes.py:10   B[i] = T.dot2(A[i], A[i], B[i], dtype="int8")
#   found:    int8
#   expected: bfloat16 or float16
#   try:      dtype="bfloat16"
