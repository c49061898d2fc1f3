"""A call with a number that its type cannot hold."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def fill(A: T.Tensor((8,), "float32"), x: T.int8):
    with T.Kernel(1):
        T.fill(A, x)


kernel = tilelang.compile(fill, execution="interpret")
kernel(np.zeros(8, np.float32), 200)


# --- what the user sees
# ScalarRangeError: TLR017: fill.x is 200, which int8 cannot hold (-128 to 127)
