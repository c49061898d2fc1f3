"""A reduction along a dimension that does not exist."""

import tilelang.language as T


@T.prim_func
def rows(A: T.Tensor((32, 64), "float32")):
    with T.Kernel(1, threads=128):
        scores = T.alloc_fragment((32, 64), "float32")
        total = T.alloc_fragment((32,), "float32")
        T.copy(A, scores)
        T.reduce_sum(scores, total, dim=2)


# --- what the user sees
# InvalidArgument: [TL117] T.reduce_sum: dim is out of range
#   --> reduce_dim_is_out_of_range.py:12   T.reduce_sum(scores, total, dim=2)
#   found:    dim=2 for scores (32, 64)
#   expected: an integer from -2 to 1
#   try:      dim=1 reduces the last dimension
