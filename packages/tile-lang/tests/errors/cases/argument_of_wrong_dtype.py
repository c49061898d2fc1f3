"""A call with a tensor of the wrong element type."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def clear(A: T.Tensor((4, 8), "float16")):
    with T.Kernel(1):
        T.clear(A)


kernel = tilelang.compile(clear, execution="interpret")
kernel(np.zeros((4, 8), np.float32))


# --- what the user sees
# ArgumentDtypeError: TLR012: clear.A.dtype is expected to be float16, but got float32; convert it, e.g. A.astype('float16')
