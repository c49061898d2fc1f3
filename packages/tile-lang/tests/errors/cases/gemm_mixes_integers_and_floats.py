"""T.gemm of int8 operands into a float accumulator."""

import tilelang.language as T


@T.prim_func
def matmul(C: T.Tensor((16, 16), "float32")):
    with T.Kernel(1, threads=32):
        A_shared = T.alloc_shared((16, 16), "int8")
        B_shared = T.alloc_shared((16, 16), "int8")
        C_local = T.alloc_fragment((16, 16), "float32")
        T.gemm(A_shared, B_shared, C_local)


# --- what the user sees
# DtypeError: [TL118] T.gemm mixes integers and floats
#   --> gemm_mixes_integers_and_floats.py:12   T.gemm(A_shared, B_shared, C_local)
#   found:    A int8, B int8, C float32
#   expected: all floating, or all integers
#   try:      convert an operand first: T.copy into a tile of the other type, or T.Parallel with T.cast
