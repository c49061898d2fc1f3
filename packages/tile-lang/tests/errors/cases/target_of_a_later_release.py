"""A target that is not in this release."""

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


tilelang.compile(kernel, target="metal")


# --- what the user sees
# UnknownTarget: [TL124] target 'metal' is not in this release
#   --> target_of_a_later_release.py:13   tilelang.compile(kernel, target="metal")
#   found:    'metal'
#   expected: cpu, cuda or hip
#   try:      target="cpu", or TILELANG_TARGET_OVERRIDE=cpu for a whole program
