"""An eager kernel that returns one of its parameters."""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(execution="interpret")
def double(A):
    N = T.const("N")
    A: T.Tensor((N,), "float32")
    with T.Kernel(1):
        for i in T.serial(N):
            A[i] = A[i] * 2
    return A


double(np.zeros(8, np.float32))


# --- what the user sees
# OutputError: [TL120] double returns something that T.empty did not make
#   --> eager_returns_a_parameter.py:16   return A
#   found:    A: global (8,) float32
#   expected: outputs from T.empty
#   try:      C = T.empty(shape, dtype) before the kernel, and return C
