"""A T.const size that no annotation mentions."""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(execution="interpret")
def double(A):
    M, N = T.const("M, N")
    A: T.Tensor((N,), "float32")
    with T.Kernel(M):
        for i in T.serial(N):
            A[i] = A[i] * 2


double(np.zeros(8, np.float32))


# --- what the user sees
# UnboundDimension: [TL127] the size M of double has no value
#   --> eager_size_without_value.py:13   with T.Kernel(M):
#   found:    T.const sizes that no tensor annotation before their first use mentions
#   expected: each one in the shape of an annotated argument, or as a keyword of compile()
#   try:      annotate the arguments right after T.const, before the sizes are used
