"""`try` in a kernel."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        try:
            A[0] = 1
        except ValueError:
            pass


# --- what the user sees
# UnsupportedConstruct: [TL102] `try` stands in a kernel
#   --> unsupported_try.py:9   try:
#   expected: assignments, loops, if, while, with, calls and expressions
#   try:      compute it outside of the kernel and close over the result
