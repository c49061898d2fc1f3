"""An output that T.empty made and nobody returns."""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(execution="interpret")
def double(A):
    N = T.const("N")
    A: T.Tensor((N,), "float32")
    B = T.empty((N,), "float32")
    with T.Kernel(1):
        for i in T.serial(N):
            B[i] = A[i] * 2


double(np.zeros(8, np.float32))


# --- what the user sees
# OutputError: [TL120] double makes an output that it does not return: B
#   --> eager_output_not_returned.py:10   def double(A):
#   found:    1 from T.empty, 0 returned
#   expected: every output returned once
#   try:      return B, or use T.alloc_global for scratch
