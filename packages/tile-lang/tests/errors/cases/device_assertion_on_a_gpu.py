"""An assertion of a GPU kernel that does not hold, in the emulator."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def reciprocal(X: T.Tensor((128,), "float32"), Y: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=128):
        for i in T.Parallel(128):
            T.device_assert(X[i] != 0, "division by zero")
            Y[i] = 1 / X[i]


kernel = tilelang.compile(reciprocal, target="cuda -arch=sm_80", execution="emulate")
kernel(np.arange(-5, 123, dtype=np.float32), np.zeros(128, np.float32))


# --- what the user sees
# KernelAssertError: TLR030: reciprocal (reciprocal_kernel): device_assertion_on_a_gpu.py:13: division by zero (thread 5 of block (0, 0, 0))
