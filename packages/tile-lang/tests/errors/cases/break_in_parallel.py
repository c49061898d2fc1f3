"""`break` in T.Parallel."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            if A[i] > 0:
                break
            A[i] = 0


# --- what the user sees
# UnsupportedConstruct: [TL102] `break` stands in T.Parallel
#   --> break_in_parallel.py:11   break
#   expected: iterations that all run
#   try:      put the rest of the body under an `if`, or use T.serial
