"""`return` under a run-time condition."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32"), n: T.int32):
    with T.Kernel(1, threads=64):
        if n < 1:
            return
        A[0] = 1


# --- what the user sees
# UnsupportedConstruct: [TL102] `return` under a run-time condition or in a run-time loop
#   --> return_under_runtime_condition.py:10   return
#   expected: one return that is always reached
#   try:      put the rest of the function under the opposite `if`
