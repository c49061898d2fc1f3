"""A CUDA target with an architecture that today's compilers have dropped."""

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


tilelang.compile(kernel, target="cuda -arch=sm_60")


# --- what the user sees
# UnknownTarget: [TL124] the architecture sm_60 is too old: CUDA 13 builds for sm_75 and newer
#   --> too_old_cuda_architecture.py:13   tilelang.compile(kernel, target="cuda -arch=sm_60")
#   found:    sm_60
#   expected: one of sm_75, sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100, sm_100a
#   try:      target="cuda -arch=sm_90a"
