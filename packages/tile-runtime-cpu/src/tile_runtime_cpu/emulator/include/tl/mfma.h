// MFMA: d = a * b + c in place, by the 64 lanes of a wave ("AMD Instinct MI300" CDNA3 ISA, "Matrix Arithmetic Instructions").
//
// mfma_<m>x<n>x<k>_<accumulator>_<a>[_<b>]; runtime/mfma.cpp has the fragments. Of gfx90a and gfx942 each has some of its
// own; a text that is compiled for no particular architecture finds all of them.
#pragma once

#if defined(__gfx90a__)
#define TL_EMU_MFMA_FLUSHES 1  // f16 and bf16 that are subnormal count as zero, and so do such results
#else
#define TL_EMU_MFMA_FLUSHES 0
#endif

namespace tl {

#define TL_MFMA(name, rows, depth, blocks, a_type, b_type, flush)                \
  TL_DEVICE void name(void* c, const void* a, const void* b) {                   \
    tl_emu_mfma(c, a, b, rows, depth, blocks, a_type, b_type, flush);            \
  }
TL_MFMA(mfma_32x32x8_f32_f16, 32, 8, 1, TL_F16, TL_F16, TL_EMU_MFMA_FLUSHES)
TL_MFMA(mfma_16x16x16_f32_f16, 16, 16, 1, TL_F16, TL_F16, TL_EMU_MFMA_FLUSHES)
TL_MFMA(mfma_32x32x8_f32_bf16, 32, 8, 1, TL_BF16, TL_BF16, TL_EMU_MFMA_FLUSHES)
TL_MFMA(mfma_16x16x16_f32_bf16, 16, 16, 1, TL_BF16, TL_BF16, TL_EMU_MFMA_FLUSHES)
TL_MFMA(mfma_32x32x2_f32_f32, 32, 2, 1, TL_F32, TL_F32, 0)
TL_MFMA(mfma_16x16x4_f32_f32, 16, 4, 1, TL_F32, TL_F32, 0)
TL_MFMA(mfma_16x16x4_f64_f64, 16, 4, 1, TL_F64, TL_F64, 0)
// Sixteen products of 4x4 matrices, four lanes each.
TL_MFMA(mfma_4x4x4_f32_f16, 4, 4, 16, TL_F16, TL_F16, TL_EMU_MFMA_FLUSHES)
TL_MFMA(mfma_4x4x4_f32_bf16, 4, 4, 16, TL_BF16, TL_BF16, TL_EMU_MFMA_FLUSHES)
TL_MFMA(mfma_4x4x4_i32_i8, 4, 4, 16, TL_S8, TL_S8, 0)

#if !defined(__gfx942__)
TL_MFMA(mfma_32x32x8_i32_i8, 32, 8, 1, TL_S8, TL_S8, 0)
TL_MFMA(mfma_16x16x16_i32_i8, 16, 16, 1, TL_S8, TL_S8, 0)
#endif

#if !defined(__gfx90a__)
TL_MFMA(mfma_32x32x16_i32_i8, 32, 16, 1, TL_S8, TL_S8, 0)
TL_MFMA(mfma_16x16x32_i32_i8, 16, 32, 1, TL_S8, TL_S8, 0)
TL_MFMA(mfma_32x32x4_f32_xf32, 32, 4, 1, TL_XF32, TL_XF32, 0)
TL_MFMA(mfma_16x16x8_f32_xf32, 16, 8, 1, TL_XF32, TL_XF32, 0)
TL_MFMA(mfma_32x32x16_f32_e4m3fnuz, 32, 16, 1, TL_E4M3_FNUZ, TL_E4M3_FNUZ, 0)
TL_MFMA(mfma_16x16x32_f32_e4m3fnuz, 16, 32, 1, TL_E4M3_FNUZ, TL_E4M3_FNUZ, 0)
TL_MFMA(mfma_32x32x16_f32_e5m2fnuz, 32, 16, 1, TL_E5M2_FNUZ, TL_E5M2_FNUZ, 0)
TL_MFMA(mfma_16x16x32_f32_e5m2fnuz, 16, 32, 1, TL_E5M2_FNUZ, TL_E5M2_FNUZ, 0)
TL_MFMA(mfma_32x32x16_f32_e4m3fnuz_e5m2fnuz, 32, 16, 1, TL_E4M3_FNUZ, TL_E5M2_FNUZ, 0)
TL_MFMA(mfma_16x16x32_f32_e4m3fnuz_e5m2fnuz, 16, 32, 1, TL_E4M3_FNUZ, TL_E5M2_FNUZ, 0)
TL_MFMA(mfma_32x32x16_f32_e5m2fnuz_e4m3fnuz, 32, 16, 1, TL_E5M2_FNUZ, TL_E4M3_FNUZ, 0)
TL_MFMA(mfma_16x16x32_f32_e5m2fnuz_e4m3fnuz, 16, 32, 1, TL_E5M2_FNUZ, TL_E4M3_FNUZ, 0)
#endif
#undef TL_MFMA

}  // namespace tl
