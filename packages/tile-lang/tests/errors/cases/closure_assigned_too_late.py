"""A name of the enclosing function that gets its value after the kernel is traced."""

import tilelang.language as T


def factory():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                A[i] = A[i] * scale

    scale = 2.0
    return kernel


factory()


# --- what the user sees
# UndefinedName: [TL105] scale is used before it is assigned
#   --> closure_assigned_too_late.py:11   A[i] = A[i] * scale
#   expected: an assignment that always runs first
#   try:      assign scale before this line
