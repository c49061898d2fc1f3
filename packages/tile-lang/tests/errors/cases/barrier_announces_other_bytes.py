"""A barrier announces the bytes of one tile, and two are copied to it."""

import tilelang
import tilelang.language as T


@T.prim_func
def double(A: T.Tensor((64, 1024), "float16"), B: T.Tensor((64, 1024), "float16")):
    with T.Kernel(1, threads=128):
        left = T.alloc_shared((64, 64), "float16")
        right = T.alloc_shared((64, 64), "float16")
        full = T.alloc_barrier(1)
        tx = T.get_thread_binding()
        if tx == 0:
            T.mbarrier_arrive_expect_tx(full, 64 * 64 * 2)
        T.tma_copy(A[0, 0], left, barrier=full, expect_tx=False)
        T.tma_copy(A[0, 64], right, barrier=full, expect_tx=False)
        T.mbarrier_wait_parity(full, 0)
        for i, j in T.Parallel(64, 64):
            B[i, j] = left[i, j] + right[i, j]


tilelang.compile(double, target="cuda -arch=sm_90a", execution="emulate")


# --- what the user sees
# BarrierMismatch: [TL208] the phase of full[0] ends before all copies to it are made
#   --> barrier_announces_other_bytes.py:17   T.tma_copy(A[0, 64], right, barrier=full, expect_tx=False)
#   found:    barrier_announces_other_bytes.py:15 announces bytes, which all have come with the copy of barrier_announces_other_bytes.py:16; barrier_announces_other_bytes.py:17 copies more
#   expected: the bytes of all copies of a phase are announced, and no others
#   try:      T.mbarrier_expect_tx(barrier, bytes of the tiles that are copied)
