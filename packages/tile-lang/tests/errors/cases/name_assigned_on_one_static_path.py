"""A name that a compile-time branch would have assigned."""

import tilelang.language as T

use_bias = False


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        if use_bias:
            bias = 1.0
        for i in T.Parallel(64):
            A[i] = A[i] + bias


# --- what the user sees
# UndefinedName: [TL105] bias is used before it is assigned
#   --> name_assigned_on_one_static_path.py:14   A[i] = A[i] + bias
#   expected: an assignment that always runs first
#   try:      assign bias before this line
