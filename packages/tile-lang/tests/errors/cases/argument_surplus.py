"""A call with too many arguments."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def copy(A: T.Tensor((8,), "float32"), B: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.copy(A, B)


kernel = tilelang.compile(copy, out_idx=[1], execution="interpret")
kernel(np.zeros(8, np.float32), np.zeros(8, np.float32), np.zeros(8, np.float32))


# --- what the user sees
# ArgumentCountError: TLR010: Kernel expected 1 inputs, but 3 are provided. copy(A) allocates its outputs (B); with 2 arguments, copy(A, B), it writes into yours.
