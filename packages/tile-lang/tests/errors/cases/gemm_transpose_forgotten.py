"""T.gemm with B stored (N, K) and no transpose_B."""

import tilelang.language as T


@T.prim_func
def matmul(C: T.Tensor((64, 128), "float32")):
    with T.Kernel(1, threads=128):
        A_shared = T.alloc_shared((64, 64), "float16")
        B_shared = T.alloc_shared((128, 64), "float16")
        C_local = T.alloc_fragment((64, 128), "float32")
        T.gemm(A_shared, B_shared, C_local)


# --- what the user sees
# GemmShapeMismatch: [TL113] T.gemm K shape check failed: K_A = 64, K_B = 128
#   --> gemm_transpose_forgotten.py:12   T.gemm(A_shared, B_shared, C_local)
#   found:    A_shared (64, 64); B_shared (128, 64); C_local (64, 128)
#   expected: A (M, K), B (K, N), C (M, N)
#   try:      mend the tiles' shapes, or use transpose_A / transpose_B for operands stored the other way
