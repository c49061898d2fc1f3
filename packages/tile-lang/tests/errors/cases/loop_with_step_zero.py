"""A loop with step 0."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in range(0, 64, 0):
            A[i] = 0


# --- what the user sees
# InvalidArgument: [TL117] T.serial has step 0
#   --> loop_with_step_zero.py:9   for i in range(0, 64, 0):
#   expected: a step that is not 0
#   try:      drop the step
