"""Two `...` in one index."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((2, 64, 32), "float32")):
    with T.Kernel(1, threads=64):
        T.clear(A[..., 0, ...])


# --- what the user sees
# IndexOutOfRange: [TL110] A is indexed with two `...`
#   --> two_ellipses.py:9   T.clear(A[..., 0, ...])
#   expected: one at most
#   try:      drop one
