"""An address that is less aligned than the vectors of the only variant that the user asked for."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def double(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(128):
            B[i] = A[i] * 2


kernel = tilelang.compile(
    double, target="cuda -arch=sm_80", execution="emulate", pass_configs={tilelang.PassConfigKey.TL_VARIANT: 0}
)
memory = np.zeros(160, np.float32)
start = -memory.ctypes.data % 16 // 4 + 1
kernel(memory[start : start + 128], np.zeros(128, np.float32))


# --- what the user sees
# NoVariantError: TLR020: double was not compiled for these arguments: no variant's guard holds (address(A) % 16 == 0 and address(B) % 16 == 0); export the kernel again with all its variants (kernel.export), or pass aligned copies (.clone())
