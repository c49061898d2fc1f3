"""A tensor parameter is assigned to as a whole."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        B = 0


# --- what the user sees
# AssignToParameter: [TL107] B is a tensor parameter and is assigned to
#   --> assignment_to_a_parameter.py:9   B = 0
#   found:    `B = ...`
#   expected: an element `B[i] = ...` or a tile operator that writes it
#   try:      T.copy(tile, B[...]) or T.fill(B, value)
