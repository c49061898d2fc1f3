"""The emulator on a machine without a C++ compiler."""

import os

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def clear(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=32):
        T.clear(A)


kernel_compiler = os.environ.get("CXX")
os.environ["CXX"] = "no-such-compiler"
try:
    tilelang.compile(clear, target="cuda -arch=sm_80", execution="emulate")(np.ones(8, np.float32))
finally:
    os.environ.pop("CXX")
    os.environ.update({"CXX": kernel_compiler} if kernel_compiler else {})


# --- what the user sees
# NoCompilerError: TLR040: the emulator compiles kernels for the host: install the compiler that CXX names ('no-such-compiler')
