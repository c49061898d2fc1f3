"""A tile operator called from plain Python."""

import tilelang.language as T

T.alloc_shared((64, 64), "float16")


# --- what the user sees
# OutsideKernel: [TL109] T.alloc_shared is used outside of a kernel
#   --> operator_in_plain_python.py:5   T.alloc_shared((64, 64), "float16")
#   expected: a call inside a function under @T.prim_func, @tilelang.jit or @T.macro
#   try:      move it into the kernel, or use numpy or torch for work on the host
