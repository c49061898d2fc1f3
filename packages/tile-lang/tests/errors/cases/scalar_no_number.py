"""A call with a tensor for a number."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def fill(A: T.Tensor((8,), "float32"), x: T.int32):
    with T.Kernel(1):
        T.fill(A, x)


kernel = tilelang.compile(fill, execution="interpret")
kernel(np.zeros(8, np.float32), np.zeros(8, np.float32))


# --- what the user sees
# ArgumentTypeError: TLR011: fill.x is expected to be an integer of dtype int32, but got numpy.ndarray
