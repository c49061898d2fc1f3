"""The next tile is brought while other threads still read the one before."""

import tilelang
import tilelang.language as T


@T.prim_func
def double(A: T.Tensor((64, 1024), "float16"), B: T.Tensor((64, 1024), "float16")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((64, 64), "float16")
        full = T.alloc_barrier(1)
        tx = T.get_thread_binding()
        for k in T.serial(16):
            T.tma_copy(A[0, k * 64], tile, barrier=full)
            if tx == 0:
                T.mbarrier_arrive(full)
            T.mbarrier_wait_parity(full, k % 2)
            for i, j in T.Parallel(64, 64):
                B[i, k * 64 + j] = tile[i, 63 - j]


tilelang.compile(double, target="cuda -arch=sm_90a", execution="emulate")


# --- what the user sees
# SharedMemoryRace: [TL205] tile[0] is copied to while it may still be in use
#   --> tma_copy_into_a_tile_in_use.py:14   T.tma_copy(A[0, k * 64], tile, barrier=full)
#   found:    tma_copy_into_a_tile_in_use.py:19 reads it (thread 7); tma_copy_into_a_tile_in_use.py:14 starts a copy to it (thread 0), with no mbarrier or barrier between them
#   expected: a bulk copy begins when all threads have let go of the bytes that it overwrites
#   try:      T.mbarrier_arrive(empty) after the last use, T.mbarrier_wait_parity(empty, parity) before the copy
