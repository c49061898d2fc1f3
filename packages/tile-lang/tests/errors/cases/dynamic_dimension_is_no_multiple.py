"""An extent that no whole dynamic dimension gives."""

import numpy as np

import tilelang
import tilelang.language as T

n = T.dynamic("n")


@T.prim_func
def clear(A: T.Tensor((n * 4,), "float32")):
    with T.Kernel(1):
        T.clear(A)


kernel = tilelang.compile(clear, execution="interpret")
kernel(np.zeros(10, np.float32))


# --- what the user sees
# ArgumentShapeError: TLR013: Argument clear.A.shape[0] has an unsatisfied constraint: 10 == 4 * n for a whole n that is not negative
