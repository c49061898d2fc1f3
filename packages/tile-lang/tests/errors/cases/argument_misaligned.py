"""A call with an address that no float32 can have."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def clear(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


kernel = tilelang.compile(clear, execution="interpret")
memory = np.zeros(33, np.uint8)
kernel(memory[1:].view(np.float32))


# --- what the user sees
# ArgumentAlignmentError: TLR015: clear.A is at address 0x..., which is no multiple of 4 bytes; pass a fresh copy, or compile the kernel for less alignment
