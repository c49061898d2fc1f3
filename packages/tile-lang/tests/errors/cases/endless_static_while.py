"""A `while` over compile-time values that never ends."""

import tilelang.language as T


@T.prim_func
def kernel(A: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        size = 64
        while size > 0:
            block = size // 2


# --- what the user sees
# StaticValueNeeded: [TL103] a `while` over compile-time values does not end
#   --> endless_static_while.py:11   block = size // 2
#   found:    a million turns
#   expected: a condition that becomes false, or one on run-time values
#   try:      use T.alloc_var for the values that the condition reads
