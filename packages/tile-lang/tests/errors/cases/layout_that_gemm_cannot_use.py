"""A product whose result has an annotated layout that its instruction cannot write."""

import tilelang
import tilelang.language as T
from tilelang.layout import Fragment


@T.prim_func
def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
    with T.Kernel(1, threads=128):
        tile = T.alloc_shared((64, 64), "float16")
        acc = T.alloc_fragment((64, 64), "float32")
        T.annotate_layout({acc: Fragment((64, 64), forward_fn=lambda i, j: (i * 2 + j // 32, j % 32))})
        T.copy(A, tile)
        T.gemm(tile, tile, acc, clear_accum=True)
        T.copy(acc, C)


tilelang.compile(main, target="cuda -arch=sm_80", execution="emulate")


# --- what the user sees
# LayoutConflict: [TL204] T.gemm and T.annotate_layout at layout_that_gemm_cannot_use.py:13 need different layouts of acc
#   --> layout_that_gemm_cannot_use.py:15   T.gemm(tile, tile, acc, clear_accum=True)
#   found:    T.annotate_layout at layout_that_gemm_cannot_use.py:13 gives acc (i, j) -> thread i * 2 + j // 32, register j % 32
#             T.gemm wants (i, j) -> thread i % 8 * 4 + j % 8 // 2 + i // 32 * 32 + j // 32 * 64, register j % 2 + i % 16 // 8 * 2 + i % 32 // 16 * 16 + j % 32 // 8 * 4
#             T.annotate_layout, line 13:    T.gemm, line 15:
#             t0 t0 t0 t0 t0 t0 t0 t0 ..      t0  t0  t1  t1  t2  t2  t3  t3  ..
#             t2 t2 t2 t2 t2 t2 t2 t2 ..      t4  t4  t5  t5  t6  t6  t7  t7  ..
#             t4 t4 t4 t4 t4 t4 t4 t4 ..      t8  t8  t9  t9 t10 t10 t11 t11  ..
#             t6 t6 t6 t6 t6 t6 t6 t6 ..     t12 t12 t13 t13 t14 t14 t15 t15  ..
#             ..                              ..
#   expected: (i, j) -> thread i % 8 * 4 + j % 8 // 2 + i // 32 * 32 + j // 32 * 64, register j % 2 + i % 16 // 8 * 2 + i % 32 // 16 * 16 + j % 32 // 8 * 4 for mma_m16n8k16_f32_f16
#   try:      drop the annotation of acc, or T.copy acc to another fragment for T.gemm
