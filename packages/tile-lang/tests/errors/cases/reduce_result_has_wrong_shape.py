"""A reduction along dim 1 into a buffer made for dim 0."""

import tilelang.language as T


@T.prim_func
def rows(A: T.Tensor((32, 64), "float32")):
    with T.Kernel(1, threads=128):
        scores = T.alloc_fragment((32, 64), "float32")
        row_max = T.alloc_fragment((64,), "float32")
        T.copy(A, scores)
        T.reduce_max(scores, row_max, dim=1)


# --- what the user sees
# ReduceShapeMismatch: [TL115] T.reduce_max of scores along dim 1: row_max has the wrong shape
#   --> reduce_result_has_wrong_shape.py:12   T.reduce_max(scores, row_max, dim=1)
#   found:    scores (32, 64), row_max (64,)
#   expected: row_max of shape (32,) or (32, 1)
#   try:      allocate row_max with shape (32,), or reduce another dim
