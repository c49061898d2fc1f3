"""The second phase of a barrier, of parity 1, is waited for as if it were the first."""

import tilelang
import tilelang.language as T


@T.prim_func
def double(A: T.Tensor((64, 1024), "float16"), B: T.Tensor((64, 1024), "float16")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((64, 64), "float16")
        full = T.alloc_barrier(1)
        tx = T.get_thread_binding()
        for k in T.serial(2):
            T.tma_copy(A[0, k * 64], tile, barrier=full)
            if tx == 0:
                T.mbarrier_arrive(full)
            T.mbarrier_wait_parity(full, 0)
            for i, j in T.Parallel(64, 64):
                B[i, k * 64 + j] = tile[i, j]
            T.sync_threads()


tilelang.compile(double, target="cuda -arch=sm_90a", execution="emulate")


# --- what the user sees
# BarrierMismatch: [TL208] the wait for full[0] never ends
#   --> barrier_waits_for_the_wrong_parity.py:17   T.mbarrier_wait_parity(full, 0)
#   found:    barrier_waits_for_the_wrong_parity.py:17 waits for phase 2, of which 0 of 1 arrivals have come; the last arrival is at barrier_waits_for_the_wrong_parity.py:16
#   expected: 1 arrivals before the phase of this parity is waited for
#   try:      wait for the parity of the phase that has ended (number of the use // versions % 2), or let every arrival that full[0] expects come
