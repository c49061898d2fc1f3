"""Two arguments disagree on a dynamic dimension."""

import numpy as np

import tilelang
import tilelang.language as T

n = T.dynamic("n")


@T.prim_func
def copy(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
    with T.Kernel(1):
        T.copy(A, B)


kernel = tilelang.compile(copy, execution="interpret")
kernel(np.zeros(8, np.float32), np.zeros(9, np.float32))


# --- what the user sees
# ArgumentShapeError: TLR013: Argument copy.B.shape[0] has an unsatisfied constraint: 9 == n, which is 8 (n = 8 from A.shape[0]). Found shape (9,)
