"""An int4 parameter gets an unpacked array."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "int4"), B: T.Tensor((8,), "int32")):
    with T.Kernel(1):
        T.copy(A, B)


tilelang.compile(kernel, execution="interpret")(np.zeros(8, np.int32), np.zeros(8, np.int32))


# --- what the user sees
# ArgumentDtypeError: TLR012: kernel.A.dtype is expected to be int4, but got int32; pass int4 packed 2 to a byte, low bits first: a uint8 or int8 array whose last extent is K // 2
