"""A matrix product on AMD by a block whose threads are no whole waves of 64."""

import tilelang
import tilelang.language as T


@T.prim_func
def product(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=96):
        a_tile, b_tile = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, 64), "float16")
        c = T.alloc_fragment((64, 64), "float32")
        T.copy(A, a_tile)
        T.copy(B, b_tile)
        T.gemm(a_tile, b_tile, c, clear_accum=True)
        T.copy(c, C)


tilelang.compile(product, target="hip -mcpu=gfx942")


# --- what the user sees
# ThreadsDoNotFit: [TL207] T.gemm into c cannot be split over the threads of the block
#   --> threads_that_form_no_waves.py:14   T.gemm(a_tile, b_tile, c, clear_accum=True)
#   found:    96 threads; mfma_32x32x8_f32_f16 runs in waves of 64
#   expected: 64, 128, 256 threads for a tile of 64 x 64
#   try:      T.Kernel(..., threads=64)
