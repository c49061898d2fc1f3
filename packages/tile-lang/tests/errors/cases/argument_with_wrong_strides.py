"""A call with a transposed array."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def clear(A: T.Tensor((4, 8), "float32")):
    with T.Kernel(1):
        T.clear(A)


kernel = tilelang.compile(clear, execution="interpret")
kernel(np.zeros((8, 4), np.float32).T)


# --- what the user sees
# ArgumentStrideError: TLR014: clear.A.strides is expected to be contiguous, but got strides (1, 4) for shape (4, 8); pass A.contiguous() (torch) or numpy.ascontiguousarray(A), or declare the parameter as T.StridedTensor
