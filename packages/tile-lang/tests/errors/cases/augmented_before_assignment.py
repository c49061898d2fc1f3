"""`+=` on a name that has no value yet."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.serial(64):
            total += A[i]


# --- what the user sees
# UndefinedName: [TL105] total is changed before it is assigned
#   --> augmented_before_assignment.py:10   total += A[i]
#   found:    `total += ...` with no value before
#   expected: an assignment to total first
#   try:      total = T.alloc_var(dtype, init=0) before the loop, or total = 0 for a compile-time value
