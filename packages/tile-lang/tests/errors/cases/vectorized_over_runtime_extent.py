"""T.vectorized over a run-time extent."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32"), n: T.int32):
    with T.Kernel(1, threads=64):
        for i in T.vectorized(n):
            A[i] = 0


# --- what the user sees
# InvalidArgument: [TL117] T.vectorized needs an extent known at compile time
#   --> vectorized_over_runtime_extent.py:9   for i in T.vectorized(n):
#   found:    <int32 n>
#   expected: a Python integer
#   try:      use T.serial, or T.Parallel and let the compiler choose vectors
