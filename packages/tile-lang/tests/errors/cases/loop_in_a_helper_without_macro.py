"""A kernel loop in a helper that is not traced."""

import tilelang.language as T


def double(A):
    for i in T.serial(64):
        A[i] = A[i] * 2


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        double(A)


# --- what the user sees
# OutsideKernel: [TL109] a T.serial loop runs outside of a kernel, or in a function that is not traced
#   --> loop_in_a_helper_without_macro.py:7   for i in T.serial(64):
#   called from loop_in_a_helper_without_macro.py:14   double(A)
#   expected: a loop in a kernel, or in a helper function under @T.macro
#   try:      put @T.macro above the helper function
