"""A tile is written by ordinary stores and then stored by T.tma_copy, without a fence of the proxies."""

import tilelang
import tilelang.language as T


@T.prim_func
def double(A: T.Tensor((64, 1024), "float16"), B: T.Tensor((64, 1024), "float16")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((64, 64), "float16")
        T.copy(A[0:64, 0:64], tile)
        T.sync_threads()
        T.tma_copy(tile, B[0:64, 0:64])
        T.tma_store_wait()


tilelang.compile(double, target="cuda -arch=sm_90a", execution="emulate")


# --- what the user sees
# SharedMemoryRace: [TL205] tile[0] is written by ordinary stores, which asynchronous reads need not see
#   --> tma_copy_of_a_tile_without_a_fence.py:13   T.tma_copy(tile, B[0:64, 0:64])
#   found:    tma_copy_of_a_tile_without_a_fence.py:11 writes it; tma_copy_of_a_tile_without_a_fence.py:13 has a bulk store read it, with no fence of the proxies between them
#   expected: each thread that writes makes a fence after its stores and before the barrier
#   try:      T.fence_proxy_async() after the stores, before T.sync_threads()
