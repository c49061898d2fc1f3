"""A name that only a run-time loop assigns, used after it."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.serial(64):
            last = A[i]
        A[0] = last


# --- what the user sees
# LoopCarriedValue: [TL106] last is used after a run-time loop that assigns it
#   --> value_left_by_a_loop.py:11   A[0] = last
#   found:    a plain Python name that would need a different value on each path through the loop
#   expected: a mutable scalar
#   try:      declare `last = T.alloc_var(dtype, init=...)` before the loop and assign to it
