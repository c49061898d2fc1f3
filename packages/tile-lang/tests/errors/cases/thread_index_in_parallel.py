"""The thread index inside T.Parallel."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            A[i] = T.get_thread_binding()


# --- what the user sees
# InvalidArgument: [TL117] the thread index is used inside T.Parallel
#   --> thread_index_in_parallel.py:10   A[i] = T.get_thread_binding()
#   found:    T.get_thread_binding in a loop whose iterations the compiler spreads over the threads
#   expected: the loop's own variables
#   try:      use T.serial with the thread index, or drop the thread index
