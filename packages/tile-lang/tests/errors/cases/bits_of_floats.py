"""`&` of floats."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            A[i] = A[i] & 1


# --- what the user sees
# DtypeError: [TL118] `&` needs integers
#   --> bits_of_floats.py:10   A[i] = A[i] & 1
#   found:    A[i] and <float32 T.float32(1.0)>
#   expected: integer or bool operands
#   try:      T.cast(x, 'int32') converts the value, T.reinterpret(x, 'int32') its bits
