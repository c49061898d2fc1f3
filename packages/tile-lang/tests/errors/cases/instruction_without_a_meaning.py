"""An instruction by its opcode, in the emulator, which nobody explained in Python."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def bits(X: T.Tensor((32,), "int32"), Y: T.Tensor((32,), "int32")):
    with T.Kernel(1, threads=32):
        for i in T.Parallel(32):
            Y[i] = T.ptx("popc.b32", X[i], dtype="int32")


kernel = tilelang.compile(bits, target="cuda -arch=sm_80", execution="emulate")
kernel(np.ones(32, np.int32), np.zeros(32, np.int32))


# --- what the user sees
# NoMeaningError: TLR043: the emulator does not know the instruction popc.b32; T.ptx(..., meaning=function) says in Python what it does
