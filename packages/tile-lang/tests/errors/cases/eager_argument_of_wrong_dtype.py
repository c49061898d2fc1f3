"""A float64 array where an eager kernel annotates float32."""

import numpy as np

import tilelang
import tilelang.language as T


@tilelang.jit(execution="interpret")
def double(A):
    N = T.const("N")
    A: T.Tensor((N,), "float32")
    with T.Kernel(1):
        for i in T.serial(N):
            A[i] = A[i] * 2


double(np.zeros(8))


# --- what the user sees
# ArgumentDtypeError: TLR012: double.A.dtype is expected to be float32, but got float64; convert it, e.g. A.astype('float32')
