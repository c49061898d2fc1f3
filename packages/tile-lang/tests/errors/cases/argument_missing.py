"""A call with too few arguments."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def copy(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.copy(A, B)


kernel = tilelang.compile(copy, execution="interpret")
kernel(np.zeros(8, np.float32))


# --- what the user sees
# ArgumentCountError: TLR010: Kernel expected 2 inputs, but 1 are provided. copy(A, B)
