"""sm_70, which today's compilers have dropped."""

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


tilelang.compile(kernel, target="cuda -arch=sm_70")


# --- what the user sees
# UnknownTarget: [TL124] sm_70 cannot be compiled for
#   --> volta_target.py:13   tilelang.compile(kernel, target="cuda -arch=sm_70")
#   found:    'cuda -arch=sm_70'
#   expected: sm_75 or newer: NVRTC 13 and nvcc 13 have dropped Volta
#   try:      target="cuda -arch=sm_75"
