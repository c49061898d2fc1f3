"""A T.prim_func that returns a value."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        T.clear(A)
    return A


# --- what the user sees
# OutputError: [TL120] kernel is a T.prim_func and returns a value
#   --> prim_func_that_returns.py:10   return A
#   expected: outputs among the parameters, named by out_idx
#   try:      drop T.prim_func and return what T.empty gave (the eager style), or drop the return
