"""T.device_assert stops the launch."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def check(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=8):
        for i in T.Parallel(8):
            T.device_assert(A[i] < 1, "A holds probabilities")


tilelang.compile(check, execution="interpret")(np.full(8, 2, np.float32))


# --- what the user sees
# InterpreterError: device assertion failed in iteration 0: A holds probabilities (block 0)
#   --> device_assert_fails.py:13   T.device_assert(A[i] < 1, "A holds probabilities")
