"""`/` of two integers."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            A[i] = i / 2


# --- what the user sees
# DtypeError: [TL118] `/` of two integers
#   --> division_of_integers.py:10   A[i] = i / 2
#   found:    <int32 i> / <int32 2>
#   expected: a floating operand, or an integer division
#   try:      use // for the floor, or T.cast(x, 'float32') / y
