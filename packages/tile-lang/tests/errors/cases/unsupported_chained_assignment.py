"""`a = b = c` in a kernel."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        x = y = A[0]
        A[1] = x + y


# --- what the user sees
# UnsupportedConstruct: [TL102] `a = b = c` stands in a kernel
#   --> unsupported_chained_assignment.py:9   x = y = A[0]
#   expected: assignments, loops, if, while, with, calls and expressions
#   try:      assign in two statements
