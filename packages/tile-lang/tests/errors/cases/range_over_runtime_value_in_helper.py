"""Python's `range` over a run-time value, outside of the traced text."""

import tilelang.language as T


def total(x, n):
    return sum(x for _ in range(n))


@T.prim_func
def kernel(A: T.Tensor((64,), "float32"), n: T.int32):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            A[i] = total(A[i], n)


# --- what the user sees
# StaticValueNeeded: [TL103] a run-time value is used where Python needs an integer
#   --> range_over_runtime_value_in_helper.py:7   return sum(x for _ in range(n))
#   called from range_over_runtime_value_in_helper.py:14   A[i] = total(A[i], n)
#   found:    <int32 n>, known only when the kernel runs
#   expected: an integer known at compile time
#   try:      use T.serial(n) instead of a Python loop over it, or make the size a Python int
