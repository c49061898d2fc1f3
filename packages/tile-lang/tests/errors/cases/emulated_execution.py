"""An execution that the target does not have."""

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


tilelang.compile(kernel, target="cpu", execution="emulate")


# --- what the user sees
# TargetUnavailable: [TL126] execution="emulate" runs generated CUDA and HIP text, and the target is cpu
#   --> emulated_execution.py:13   tilelang.compile(kernel, target="cpu", execution="emulate")
#   found:    target cpu
#   expected: a target of theirs, for example "cuda -arch=sm_80" or "hip -mcpu=gfx942"
#   try:      name one, or use execution="interpret", which runs any kernel tile by tile in numpy
