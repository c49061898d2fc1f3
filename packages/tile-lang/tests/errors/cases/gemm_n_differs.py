"""T.gemm whose accumulator has another N than B."""

import tilelang.language as T


@T.prim_func
def matmul(C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        A_shared = T.alloc_shared((64, 32), "float16")
        B_shared = T.alloc_shared((32, 128), "float16")
        C_local = T.alloc_fragment((64, 64), "float32")
        T.gemm(A_shared, B_shared, C_local)


# --- what the user sees
# GemmShapeMismatch: [TL113] T.gemm N shape check failed: N_B = 128, N_C = 64
#   --> gemm_n_differs.py:12   T.gemm(A_shared, B_shared, C_local)
#   found:    A_shared (64, 32); B_shared (32, 128); C_local (64, 64)
#   expected: A (M, K), B (K, N), C (M, N)
#   try:      mend the tiles' shapes, or use transpose_A / transpose_B for operands stored the other way
