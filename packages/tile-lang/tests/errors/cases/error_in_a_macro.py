"""A mistake in a macro: its line, and the line that called it."""

import tilelang.language as T


@T.macro
def load(source, tile):
    T.copy(source[0:16, 0:16], tile)


@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=64):
        tile = T.alloc_shared((32, 32), "float32")
        load(A, tile)


# --- what the user sees
# CopyShapeMismatch: [TL114] T.copy of A to tile: the extents cannot match
#   --> error_in_a_macro.py:8   T.copy(source[0:16, 0:16], tile)
#   called from error_in_a_macro.py:15   load(A, tile)
#   found:    (16, 16) and (32, 32)
#   expected: the same extents in the same order, apart from extents of 1
#   try:      give one side as an origin (A[i, j]); it takes the other side's extents
