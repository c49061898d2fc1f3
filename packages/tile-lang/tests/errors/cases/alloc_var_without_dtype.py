"""A mutable scalar without a type."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=64):
        count = T.alloc_var(init=0)


# --- what the user sees
# MissingDtype: [TL116] T.alloc_var names no element type
#   --> alloc_var_without_dtype.py:9   count = T.alloc_var(init=0)
#   expected: a dtype
#   try:      T.alloc_var("int32", init=0)
