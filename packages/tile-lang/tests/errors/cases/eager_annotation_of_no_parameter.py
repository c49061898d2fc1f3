"""A tensor annotation in the body for a name that is no parameter."""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(execution="interpret")
def double(A):
    N = T.const("N")
    A: T.Tensor((N,), "float32")
    B: T.Tensor((N,), "float32")
    with T.Kernel(1):
        for i in T.serial(N):
            B[i] = A[i] * 2


double(np.zeros(8, np.float32))


# --- what the user sees
# BadAnnotation: [TL119] B is annotated as a tensor and is no parameter
#   --> eager_annotation_of_no_parameter.py:13   B: T.Tensor((N,), "float32")
#   found:    B: T.Tensor((N,), 'float32')
#   expected: a parameter of the function
#   try:      add B to the parameters, or write B = T.empty(shape, dtype) for an output
