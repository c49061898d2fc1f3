"""A Layout for a fragment."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float16")):
    with T.Kernel(1, threads=64):
        x = T.alloc_fragment((64, 64), "float16")
        T.annotate_layout({x: T.Layout((64, 64), lambda i, j: (j, i))})


# --- what the user sees
# InvalidArgument: [TL117] T.annotate_layout of x: the wrong kind of layout
#   --> layout_of_the_wrong_kind.py:10   T.annotate_layout({x: T.Layout((64, 64), lambda i, j: (j, i))})
#   found:    Layout for memory of scope local.fragment
#   expected: a Fragment for fragments, a Layout for everything else
#   try:      T.Fragment(shape, forward_fn=lambda i, j: (thread, register))
