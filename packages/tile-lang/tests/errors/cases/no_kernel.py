"""A function without T.Kernel."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    pass


# --- what the user sees
# NoKernel: [TL108] kernel launches nothing
#   --> no_kernel.py:7   def kernel(A: T.Tensor((64,), "float32")):
#   found:    no `with T.Kernel(...)` in its body
#   expected: at least one
#   try:      `with T.Kernel(T.ceildiv(N, 128), threads=128) as bx:` around the work
