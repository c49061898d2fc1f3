"""A parameter of a type that does not exist."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "flaot16")):
    with T.Kernel(1, threads=64):
        T.clear(A)


# --- what the user sees
# DtypeError: [TL118] T.Tensor: unknown element type 'flaot16'
#   --> annotation_with_unknown_dtype.py:7   def kernel(A: T.Tensor((64,), "flaot16")):
#   found:    'flaot16'
#   expected: a name such as 'float16', T.float16, or a torch or numpy dtype
#   try:      did you mean 'float16'?
