"""T.gemm whose accumulator has another M than A."""

import tilelang.language as T


@T.prim_func
def matmul(C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        A_shared = T.alloc_shared((32, 16), "float16")
        B_shared = T.alloc_shared((16, 64), "float16")
        C_local = T.alloc_fragment((64, 64), "float32")
        T.gemm(A_shared, B_shared, C_local)


# --- what the user sees
# GemmShapeMismatch: [TL113] T.gemm M shape check failed: M_A = 32, M_C = 64
#   --> gemm_m_differs.py:12   T.gemm(A_shared, B_shared, C_local)
#   found:    A_shared (32, 16); B_shared (16, 64); C_local (64, 64)
#   expected: A (M, K), B (K, N), C (M, N)
#   try:      mend the tiles' shapes, or use transpose_A / transpose_B for operands stored the other way
