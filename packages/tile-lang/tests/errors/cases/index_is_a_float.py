"""An index that is no integer."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.serial(32):
            A[A[i]] = 0


# --- what the user sees
# DtypeError: [TL118] an index is not an integer
#   --> index_is_a_float.py:10   A[A[i]] = 0
#   found:    A[i]
#   expected: an integer expression
#   try:      use // for integer division, or T.cast(x, 'int32')
