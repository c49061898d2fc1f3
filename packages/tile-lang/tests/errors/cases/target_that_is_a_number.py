"""Something that is no target at all."""

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


tilelang.compile(kernel, target=90)


# --- what the user sees
# UnknownTarget: [TL124] 90 is no target
#   --> target_that_is_a_number.py:13   tilelang.compile(kernel, target=90)
#   found:    90
#   expected: "auto", "cpu" (also "llvm", "c"), "cuda", "hip", with options such as "cuda -arch=sm_90a"
#   try:      target="cpu"
