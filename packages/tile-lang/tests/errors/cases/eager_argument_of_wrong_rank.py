"""A matrix where an eager kernel annotates a vector."""

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


double(np.zeros((2, 4), np.float32))


# --- what the user sees
# InvalidArgument: [TL117] A has the wrong number of dimensions
#   --> eager_argument_of_wrong_rank.py:12   A: T.Tensor((N,), "float32")
#   found:    a tensor of shape (2, 4)
#   expected: T.Tensor((N,), 'float32')
#   try:      reshape the argument, or mend the annotation
