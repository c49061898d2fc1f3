"""A Python `if` on a run-time value where a static one is needed: in a helper that is not traced."""

import tilelang.language as T


def clip(x):
    if x > 1:
        return 1
    return x


@T.prim_func
def relu(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            A[i] = clip(A[i])


# --- what the user sees
# StaticValueNeeded: [TL103] a run-time value is used as a Python truth value
#   --> if_in_plain_helper.py:7   if x > 1:
#   called from if_in_plain_helper.py:16   A[i] = clip(A[i])
#   found:    <bool A[i] > T.float32(1.0)>, known only when the kernel runs
#   expected: a value known at compile time
#   try:      use `if` directly in the kernel or in a function under @T.macro, T.if_then_else(cond, a, b) for a value, or T.device_assert for an assertion
