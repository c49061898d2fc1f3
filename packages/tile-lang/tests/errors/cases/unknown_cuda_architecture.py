"""A CUDA target with an architecture of another vendor."""

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


tilelang.compile(kernel, target="cuda -arch=gfx942")


# --- what the user sees
# UnknownTarget: [TL124] 'gfx942' is no CUDA architecture
#   --> unknown_cuda_architecture.py:13   tilelang.compile(kernel, target="cuda -arch=gfx942")
#   found:    'cuda -arch=gfx942'
#   expected: "sm_80", "sm_90a", ...
#   try:      target="cuda -arch=sm_90a"
