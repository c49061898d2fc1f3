"""A tile that T.tma_copy brings is read at once."""

import tilelang
import tilelang.language as T


@T.prim_func
def double(A: T.Tensor((64, 1024), "float16"), B: T.Tensor((64, 1024), "float16")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((64, 64), "float16")
        full = T.alloc_barrier(1)
        tx = T.get_thread_binding()
        T.tma_copy(A[0, 0], tile, barrier=full)
        if tx == 0:
            T.mbarrier_arrive(full)
        for i, j in T.Parallel(64, 64):
            B[i, j] = tile[i, j] + tile[i, j]
        T.mbarrier_wait_parity(full, 0)


tilelang.compile(double, target="cuda -arch=sm_90a", execution="emulate")


# --- what the user sees
# SharedMemoryRace: [TL205] tile[0] is still being copied to
#   --> tma_copy_is_not_waited_for.py:16   for i, j in T.Parallel(64, 64):
#   found:    tma_copy_is_not_waited_for.py:13 starts a copy to it; tma_copy_is_not_waited_for.py:16 reads it (thread 0), with no wait for the copy's barrier between them
#   expected: who uses a tile that a bulk copy brings waits for its barrier, in the phase of that copy
#   try:      T.mbarrier_wait_parity(barrier, parity) before the use
