"""An eager kernel whose source cannot be read."""

import numpy as np

import tilelang
import tilelang.language as T

TEXT = """
@tilelang.jit(execution="interpret")
def double(A):
    A: T.Tensor((8,), "float32")
    with T.Kernel(1):
        for i in T.serial(8):
            A[i] = A[i] * 2
"""

space = {"T": T, "tilelang": tilelang}
exec(TEXT, space)
space["double"](np.zeros(8, np.float32))


# --- what the user sees
# SourceUnavailable: [TL101] the source of double cannot be read
#   --> <string>:2
#   found:    code from <string>
#   expected: a function in a file or a notebook cell
#   try:      put the kernel into a .py file (kernels typed at the prompt or made by exec() have no text)
