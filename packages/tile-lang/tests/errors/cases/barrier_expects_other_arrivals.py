"""A barrier expects all threads, and one arrives."""

import tilelang
import tilelang.language as T


@T.prim_func
def double(A: T.Tensor((64, 1024), "float16"), B: T.Tensor((64, 1024), "float16")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((64, 64), "float16")
        full = T.alloc_barrier(128)
        tx = T.get_thread_binding()
        T.tma_copy(A[0, 0], tile, barrier=full)
        if tx == 0:
            T.mbarrier_arrive(full)
        T.mbarrier_wait_parity(full, 0)
        for i, j in T.Parallel(64, 64):
            B[i, j] = tile[i, j] + tile[i, j]


tilelang.compile(double, target="cuda -arch=sm_90a", execution="emulate")


# --- what the user sees
# BarrierMismatch: [TL208] the wait for full[0] never ends
#   --> barrier_expects_other_arrivals.py:16   T.mbarrier_wait_parity(full, 0)
#   found:    barrier_expects_other_arrivals.py:16 waits for phase 0, of which 1 of 128 arrivals have come; the last arrival is at barrier_expects_other_arrivals.py:15
#   expected: 128 arrivals before the phase of this parity is waited for
#   try:      wait for the parity of the phase that has ended (number of the use // versions % 2), or let every arrival that full[0] expects come
