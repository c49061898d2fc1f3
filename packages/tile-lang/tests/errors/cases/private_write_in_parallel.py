"""A thread's own scalar from outside is written inside T.Parallel."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        total = T.alloc_var("float32", init=0)
        for i in T.Parallel(64):
            total = total + A[i]
        A[0] = total


# --- what the user sees
# PrivateWriteInParallel: [TL122] total is private to a thread and is written inside T.Parallel
#   --> private_write_in_parallel.py:11   total = total + A[i]
#   found:    total (local.var) allocated outside of the loop
#   expected: iterations that write shared memory, a fragment or global memory, or memory of their own
#   try:      allocate total inside the loop, make it a fragment, or use T.serial
