"""A sum in a plain name over a run-time loop."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        total = 0.0
        for i in T.serial(64):
            total = total + A[i]
        A[0] = total


# --- what the user sees
# LoopCarriedValue: [TL106] total carries a value from one iteration of a run-time loop to the next
#   --> value_carried_by_a_loop.py:11   total = total + A[i]
#   found:    total is read and then assigned in the loop's body, which is traced once
#   expected: a mutable scalar
#   try:      declare `total = T.alloc_var(dtype, init=...)` before the loop
