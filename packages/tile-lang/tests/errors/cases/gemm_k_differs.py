"""T.gemm whose operands have different K."""

import tilelang.language as T


@T.prim_func
def matmul(A: T.Tensor((64, 32), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        A_shared = T.alloc_shared((64, 32), "float16")
        B_shared = T.alloc_shared((64, 64), "float16")
        C_local = T.alloc_fragment((64, 64), "float32")
        T.copy(A, A_shared)
        T.copy(B, B_shared)
        T.clear(C_local)
        T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C)


# --- what the user sees
# GemmShapeMismatch: [TL113] T.gemm K shape check failed: K_A = 32, K_B = 64
#   --> gemm_k_differs.py:15   T.gemm(A_shared, B_shared, C_local)
#   found:    A_shared (64, 32); B_shared (64, 64); C_local (64, 64)
#   expected: A (M, K), B (K, N), C (M, N)
#   try:      mend the tiles' shapes, or use transpose_A / transpose_B for operands stored the other way
