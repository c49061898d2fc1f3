"""A call with a keyword that names no parameter."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def copy(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.copy(A, B)


kernel = tilelang.compile(copy, out_idx=[1], execution="interpret")
kernel(X=np.zeros(8, np.float32))


# --- what the user sees
# ArgumentCountError: TLR010: copy(A, B): the call has no parameter 'X' left to fill
