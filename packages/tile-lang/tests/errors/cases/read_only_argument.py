"""An array that the kernel must not write."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def clear(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


array = np.zeros(8, np.float32)
array.flags.writeable = False
tilelang.compile(clear, execution="interpret")(array)


# --- what the user sees
# ReadOnlyError: TLR018: clear.A is read-only and the kernel writes to it; pass a writable copy
