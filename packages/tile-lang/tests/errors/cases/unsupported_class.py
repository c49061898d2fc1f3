"""A class in a kernel."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    class Sizes:
        block = 64

    with T.Kernel(1, threads=64):
        A[0] = Sizes.block


# --- what the user sees
# UnsupportedConstruct: [TL102] a class definition stands in a kernel
#   --> unsupported_class.py:8   class Sizes:
#   expected: assignments, loops, if, while, with, calls and expressions
#   try:      compute it outside of the kernel and close over the result
