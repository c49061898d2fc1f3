"""A mistake in a GPU kernel that the emulator finds."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def shifted(X: T.Tensor((128,), "float32"), Y: T.Tensor((128,), "float32")):
    with T.Kernel(1, threads=64) as bx:
        tile = T.alloc_shared((128,), "float32")
        T.copy(X[0:64], tile[64:128])
        T.copy(tile, Y)


kernel = tilelang.compile(shifted, target="cuda -arch=sm_80", execution="emulate")
kernel(np.ones(128, np.float32), np.zeros(128, np.float32))


# --- what the user sees
# EmulationError: TLR042: uninitialized-read: thread 0 of block (0, 0, 0) reads tile[0:2], which nobody has written (and 31 more like it)
#   --> emulator_unwritten_memory.py:14   T.copy(tile, Y)
#   device:   line 10: *(tl::vec<float, 2> *)&Y[tx * 2] = *(const tl::vec<float, 2> *)&tile[tx * 2];
#   try:      T.clear or T.fill it, or a T.copy that covers the element, before this line
