"""A shared layout that puts two elements into one place."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=64):
        x = T.alloc_shared((64, 64), "float16")
        T.annotate_layout({x: lambda i, j: (i, j // 2)})


# --- what the user sees
# InvalidArgument: [TL117] T.annotate_layout of x: two elements share one place
#   --> layout_not_one_to_one.py:10   T.annotate_layout({x: lambda i, j: (i, j // 2)})
#   found:    Layout((64, 64) -> (64, 32), (i, j) -> (i, j // 2))
#   expected: a one-to-one map
#   try:      let the index function keep all of its indices
