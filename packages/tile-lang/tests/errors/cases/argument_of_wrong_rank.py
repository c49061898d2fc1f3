"""A call with a tensor of the wrong rank."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def clear(A: T.Tensor((4, 8), "float32")):
    with T.Kernel(1):
        T.clear(A)


kernel = tilelang.compile(clear, execution="interpret")
kernel(np.zeros(32, np.float32))


# --- what the user sees
# ArgumentShapeError: TLR013: clear.A.ndim is expected to be 2, but got 1: declared shape (4, 8), found (32,)
