"""T.gemm on an origin, which names one element only."""

import tilelang.language as T


@T.prim_func
def matmul(A: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=128):
        B_shared = T.alloc_shared((16, 64), "float16")
        C_local = T.alloc_fragment((64, 64), "float32")
        T.gemm(A[0, 0], B_shared, C_local)


# --- what the user sees
# InvalidArgument: [TL117] T.gemm: A is one element
#   --> gemm_operand_is_one_element.py:11   T.gemm(A[0, 0], B_shared, C_local)
#   found:    A[0, 0]
#   expected: a buffer or a region with its extents
#   try:      write A[i0:i1, j0:j1]
