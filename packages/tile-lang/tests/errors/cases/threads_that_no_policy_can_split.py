"""A matrix product by a block whose threads are no whole warps of 32: no policy can split it."""

import tilelang
import tilelang.language as T


@T.prim_func
def product(A: T.Tensor((32, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((32, 64), "float32")):
    with T.Kernel(1, threads=48):
        a_tile, b_tile = T.alloc_shared((32, 64), "float16"), T.alloc_shared((64, 64), "float16")
        c = T.alloc_fragment((32, 64), "float32")
        T.copy(A, a_tile)
        T.copy(B, b_tile)
        T.gemm(a_tile, b_tile, c, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
        T.copy(c, C)


tilelang.compile(product, target="cuda -arch=sm_80")


# --- what the user sees
# ThreadsDoNotFit: [TL207] T.gemm into c cannot be split over the threads of the block
#   --> threads_that_no_policy_can_split.py:14   T.gemm(a_tile, b_tile, c, policy=T.GemmWarpPolicy.FullRow, clear_accum=True)
#   found:    48 threads; mma_m16n8k16_f32_f16 runs in waves of 32
#   expected: 32, 64, 128, 256, 512 threads for a tile of 32 x 64
#   try:      T.Kernel(..., threads=32)
