"""T.gemm on a whole parameter whose size is dynamic."""

import tilelang.language as T

m = T.dynamic("m")


@T.prim_func
def matmul(A: T.Tensor((m, 16), "float16")):
    with T.Kernel(1, threads=128):
        B_shared = T.alloc_shared((16, 64), "float16")
        C_local = T.alloc_fragment((64, 64), "float32")
        T.gemm(A, B_shared, C_local)


# --- what the user sees
# GemmShapeMismatch: [TL113] T.gemm: A is no matrix of a fixed size
#   --> gemm_operand_of_dynamic_size.py:13   T.gemm(A, B_shared, C_local)
#   found:    A with extents (m, 16)
#   expected: two dimensions known at compile time (leading ones of extent 1)
#   try:      copy the operand into a tile from T.alloc_shared or T.alloc_fragment
