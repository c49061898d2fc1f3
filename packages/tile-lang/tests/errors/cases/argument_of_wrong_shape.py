"""A call with a tensor of the wrong shape."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def clear(A: T.Tensor((4, 8), "float32")):
    with T.Kernel(1):
        T.clear(A)


kernel = tilelang.compile(clear, execution="interpret")
kernel(np.zeros((4, 9), np.float32))


# --- what the user sees
# ArgumentShapeError: TLR013: Argument clear.A.shape[1] has an unsatisfied constraint: 9 == 8. Found shape (4, 9)
