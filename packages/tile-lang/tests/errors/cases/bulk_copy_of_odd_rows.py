"""A bulk copy of rows whose length no such copy can have."""

import tilelang
import tilelang.language as T


@T.prim_func
def rows(A: T.Tensor((64, 60), "float16"), B: T.Tensor((64, 60), "float16")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((64, 60), "float16")
        arrived = T.alloc_barrier(128)
        T.tma_copy(A, tile, barrier=arrived)
        T.mbarrier_arrive(arrived)
        T.mbarrier_wait_parity(arrived, 0)
        T.copy(tile, B)


tilelang.compile(rows, target="cuda -arch=sm_90a")


# --- what the user sees
# UnsupportedOnTarget: [TL203] T.tma_copy of A to tile has no instruction
#   --> bulk_copy_of_odd_rows.py:12   T.tma_copy(A, tile, barrier=arrived)
#   found:    120 bytes from row to row of A, no multiple of 16
#   expected: a tile of a contiguous tensor with rows of multiples of 16 bytes, in panels or rows
#   try:      T.copy, which copies every tile
