"""A HIP target with an architecture that is too old."""

import tilelang
import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((8,), "float32")):
    with T.Kernel(1):
        T.clear(A)


tilelang.compile(kernel, target="hip -mcpu=gfx900")


# --- what the user sees
# UnknownTarget: [TL124] the architecture gfx900 is too old: CDNA2 is the first that kernels are built for
#   --> too_old_hip_architecture.py:13   tilelang.compile(kernel, target="hip -mcpu=gfx900")
#   found:    gfx900
#   expected: one of gfx90a, gfx942
#   try:      target="hip -mcpu=gfx942"
