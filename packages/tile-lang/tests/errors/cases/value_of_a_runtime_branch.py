"""A name assigned in a run-time branch and used after it."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32"), n: T.int32):
    with T.Kernel(1, threads=64):
        if n > 3:
            scale = 1.0
        else:
            scale = 2.0
        for i in T.Parallel(64):
            A[i] = A[i] * scale


# --- what the user sees
# LoopCarriedValue: [TL106] scale is used after a run-time if that assigns it
#   --> value_of_a_runtime_branch.py:14   A[i] = A[i] * scale
#   found:    a plain Python name that would need a different value on each path through the if
#   expected: a mutable scalar
#   try:      declare `scale = T.alloc_var(dtype, init=...)` before the if and assign to it
