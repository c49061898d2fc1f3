"""`for ... else` in a kernel."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.serial(64):
            A[i] = 0
        else:
            A[0] = 1


# --- what the user sees
# UnsupportedConstruct: [TL102] `for ... else` stands in a kernel
#   --> unsupported_for_else.py:9   for i in T.serial(64):
#   expected: assignments, loops, if, while, with, calls and expressions
#   try:      use a flag from T.alloc_var
