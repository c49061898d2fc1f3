"""Something that is no number is stored."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        A[0] = "zero"


# --- what the user sees
# RuntimeValueNeeded: [TL104] an object that is no number stands where a scalar is needed
#   --> text_stored_into_an_element.py:9   A[0] = "zero"
#   found:    str 'zero'
#   expected: a number, an element such as A[i, j], or an expression of them
#   try:      index a buffer to get one element; use T.copy or T.Parallel for whole tiles
