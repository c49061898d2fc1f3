"""A whole tile as the condition of an `if`."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        if A:
            T.clear(A)


# --- what the user sees
# StaticValueNeeded: [TL103] a whole tile is the condition of an `if`
#   --> whole_tile_as_condition.py:9   if A:
#   found:    A: global (64,) float32
#   expected: one element or a comparison
#   try:      index it: `if A[i] > 0:`
