"""A conflict that only the run can decide, found by the interpreter."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def scatter(I: T.Tensor((8,), "int32"), A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=8):
        for i in T.Parallel(8):
            A[I[i]] = i


kernel = tilelang.compile(scatter, execution="interpret")
kernel(np.array([0, 1, 2, 3, 4, 5, 5, 7], np.int32), np.zeros(8, np.float32))


# --- what the user sees
# InterpreterError: race on A[5]: iteration 6 writes, with another value than iteration 5 (block 0)
#   --> race_found_at_run_time.py:13   A[I[i]] = i
#   found:    two lanes meet at A[5]
#   expected: lanes run in any order: each writes its own elements and reads no other lane's
#   try:      give each lane its own element, use T.atomic_add, or split the loop in two
