"""`break` under a run-time condition in a loop that Python unrolls."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in [1, 2, 3]:
            if A[i] > 0:
                break
            A[i] = 0


# --- what the user sees
# StaticValueNeeded: [TL103] `break` under a run-time condition leaves a loop that Python unrolls
#   --> break_of_unrolled_loop.py:11   break
#   found:    a Python loop over compile-time values
#   expected: a loop that exists when the kernel runs
#   try:      use `for i in T.serial(n)`
