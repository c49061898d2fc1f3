"""A call by keywords that leaves out an input."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def add(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32"), C: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        for i in T.serial(8):
            C[i] = A[i] + B[i]


kernel = tilelang.compile(add, out_idx=[2], execution="interpret")
kernel(A=np.zeros(8, np.float32), C=np.zeros(8, np.float32))


# --- what the user sees
# ArgumentCountError: TLR010: add(A, B, C): the call has no value for B
