"""Two arguments of an eager kernel disagree on a size."""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(execution="interpret")
def add(A, B):
    N = T.const("N")
    A: T.Tensor((N,), "float32")
    B: T.Tensor((N,), "float32")
    C = T.empty((N,), "float32")
    with T.Kernel(1):
        for i in T.serial(N):
            C[i] = A[i] + B[i]
    return C


add(np.zeros(8, np.float32), np.zeros(9, np.float32))


# --- what the user sees
# UnboundDimension: [TL127] two arguments disagree on N
#   --> eager_sizes_disagree.py:13   B: T.Tensor((N,), "float32")
#   found:    N = 8 so far, and 9 in B with shape (9,)
#   expected: one value
#   try:      pass tensors whose shapes fit together
