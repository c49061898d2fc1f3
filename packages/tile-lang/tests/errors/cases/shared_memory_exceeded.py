"""Tiles that are too large for a block's shared memory, with more stages than fit."""

import tilelang
import tilelang.language as T


@T.prim_func
def product(
    A: T.Tensor((1024, 1024), "float16"), B: T.Tensor((1024, 1024), "float16"), C: T.Tensor((1024, 1024), "float32")
):
    with T.Kernel(8, 8, threads=128) as (bx, by):
        a_tile = T.alloc_shared((128, 64), "float16")
        b_tile = T.alloc_shared((64, 128), "float16")
        c = T.alloc_fragment((128, 128), "float32")
        T.clear(c)
        for k in T.Pipelined(16, num_stages=4):
            T.copy(A[by * 128, k * 64], a_tile)
            T.copy(B[k * 64, bx * 128], b_tile)
            T.gemm(a_tile, b_tile, c)
        T.copy(c, C[by * 128, bx * 128])


tilelang.compile(product, target="cuda -arch=sm_89")


# --- what the user sees
# SharedMemoryOverflow: [TL206] the kernel needs 131072 bytes of shared memory for a block
#   --> shared_memory_exceeded.py:11   with T.Kernel(8, 8, threads=128) as (bx, by):
#   found:    a_tile 65536, b_tile 65536 bytes
#   expected: at most 101376 bytes on sm_89
#   try:      num_stages=3 fits; or use smaller tiles
