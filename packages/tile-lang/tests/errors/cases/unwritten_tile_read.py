"""A tile that nobody wrote is read, found by the interpreter."""

import numpy as np

import tilelang
import tilelang.language as T


@T.prim_func
def store(A: T.Tensor((8,), "float32")):
    with T.Kernel(1, threads=8):
        tile = T.alloc_shared((8,), "float32")
        T.copy(tile, A)


tilelang.compile(store, execution="interpret")(np.zeros(8, np.float32))


# --- what the user sees
# InterpreterError: tile[0] is read, but nobody wrote it (block 0)
#   --> unwritten_tile_read.py:13   T.copy(tile, A)
#   found:    tile: float32[8] in scope shared.dyn, unwritten there
#   expected: on-chip memory is written before it is read
#   try:      T.clear(tile), T.fill, or a T.copy that covers the element
