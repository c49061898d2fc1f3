"""A target that nobody provides."""

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


tilelang.compile(kernel, target="gpu")


# --- what the user sees
# UnknownTarget: [TL124] 'gpu' is no target
#   --> unknown_target.py:13   tilelang.compile(kernel, target="gpu")
#   found:    'gpu'
#   expected: "auto", "cpu" (also "llvm", "c"), "cuda", "hip", with options such as "cuda -arch=sm_90a"
#   try:      target="cpu"
