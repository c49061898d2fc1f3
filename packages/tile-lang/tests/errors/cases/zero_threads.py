"""No threads."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=0):
        T.clear(A)


# --- what the user sees
# InvalidThreads: [TL121] threads= of T.Kernel is impossible
#   --> zero_threads.py:8   with T.Kernel(1, threads=0):
#   found:    0
#   expected: one to three positive integers known at compile time
#   try:      threads=128
