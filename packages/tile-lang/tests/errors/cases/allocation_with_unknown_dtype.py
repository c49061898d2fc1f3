"""An allocation of a type that does not exist."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        tile = T.alloc_shared((64,), "float17")


# --- what the user sees
# DtypeError: [TL118] T.alloc_shared: unknown element type 'float17'
#   --> allocation_with_unknown_dtype.py:9   tile = T.alloc_shared((64,), "float17")
#   found:    'float17'
#   expected: a name such as 'float16', T.float16, or a torch or numpy dtype
#   try:      did you mean 'float16'?
