"""A buffer is iterated like a list."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for x in A:
            A[0] = x


# --- what the user sees
# InvalidArgument: [TL117] A is a buffer and cannot be iterated by Python
#   --> buffer_iterated.py:9   for x in A:
#   found:    iteration over a run-time buffer
#   expected: a loop over indices
#   try:      `for i in T.serial(64): ... A[i] ...`
