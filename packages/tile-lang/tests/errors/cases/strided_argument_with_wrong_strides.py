"""A call with other strides than T.StridedTensor declares."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def clear(A: T.StridedTensor((4, 8), (16, 1), "float32")):
    with T.Kernel(1):
        T.clear(A)


kernel = tilelang.compile(clear, execution="interpret")
kernel(np.zeros((4, 8), np.float32))


# --- what the user sees
# ArgumentStrideError: TLR014: Argument clear.A.strides[0] has an unsatisfied constraint: 8 == 16, which is 16. Found strides (8, 1) for shape (4, 8)
