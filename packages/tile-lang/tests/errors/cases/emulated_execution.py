"""An execution that is not in this release."""

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


tilelang.compile(kernel, target="cuda", execution="emulate")


# --- what the user sees
# TargetUnavailable: [TL126] execution="emulate" is not in this release
#   --> emulated_execution.py:13   tilelang.compile(kernel, target="cuda", execution="emulate")
#   found:    target cuda
#   expected: execution="device" or "interpret"
#   try:      execution="interpret" runs any kernel, for any target, tile by tile in numpy
