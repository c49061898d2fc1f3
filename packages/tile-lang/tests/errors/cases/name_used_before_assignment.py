"""A local name is used before it is assigned."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            A[i] = scale * 2.0
        scale = 3.0


# --- what the user sees
# UndefinedName: [TL105] scale is used before it is assigned
#   --> name_used_before_assignment.py:10   A[i] = scale * 2.0
#   found:    scale is a name of this function, and no assignment to it has run yet
#   expected: an assignment that always runs first
#   try:      assign scale before this line
