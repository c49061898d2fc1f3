// What only CUDA has: named barriers, asynchronous copies by groups, matrices by mma.sync. All of it lives in the runtime.
#pragma once

namespace tl {

// Of a value that is the same in all lanes of the warp.
TL_DEVICE int uniform(int v) { return shfl_idx(v, 0); }

template <int barrier, int count>
TL_DEVICE void sync_threads() {
  static_assert(barrier >= 0 && barrier < 16, "a block has 16 barriers");
  static_assert(count > 0 && count % 32 == 0, "whole warps meet at a barrier");
  tl_emu_sync_threads(barrier, count);
}
template <int barrier, int count>
TL_DEVICE void arrive_threads() {
  static_assert(barrier >= 0 && barrier < 16, "a block has 16 barriers");
  static_assert(count > 0 && count % 32 == 0, "whole warps meet at a barrier");
  tl_emu_arrive_threads(barrier, count);
}
TL_DEVICE void sync_barrier(int barrier, int count) { tl_emu_sync_threads(barrier, count); }
TL_DEVICE void arrive_barrier(int barrier, int count) { tl_emu_arrive_threads(barrier, count); }

template <int bytes>
TL_DEVICE void cp_async(void* shared, const void* global, bool valid = true) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
  tl_emu_cp_async(shared, global, bytes, valid);
}
TL_DEVICE void cp_async_commit() { tl_emu_cp_async_commit(); }
template <int pending>
TL_DEVICE void cp_async_wait() {
  tl_emu_cp_async_wait(pending);
}

#define TL_MATRIX(count)                                                                                             \
  TL_DEVICE void ldmatrix_x##count(void* registers, const void* row) { tl_emu_ldmatrix(registers, row, count, 0); }  \
  TL_DEVICE void ldmatrix_x##count##_trans(void* registers, const void* row) {                                       \
    tl_emu_ldmatrix(registers, row, count, 1);                                                                       \
  }                                                                                                                  \
  TL_DEVICE void stmatrix_x##count(void* row, const void* registers) { tl_emu_stmatrix(row, registers, count, 0); }  \
  TL_DEVICE void stmatrix_x##count##_trans(void* row, const void* registers) {                                       \
    tl_emu_stmatrix(row, registers, count, 1);                                                                       \
  }
TL_MATRIX(1)
TL_MATRIX(2)
TL_MATRIX(4)
#undef TL_MATRIX

#define TL_MMA(name, a_type, b_type, depth, form)            \
  TL_DEVICE void name(void* c, const void* a, const void* b) { \
    tl_emu_mma(c, a, b, a_type, b_type, depth, form);          \
  }
TL_MMA(mma_m16n8k8_f32_f16, TL_F16, TL_F16, 8, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k8_f16_f16, TL_F16, TL_F16, 8, TL_MMA_F16)
TL_MMA(mma_m16n8k16_f32_f16, TL_F16, TL_F16, 16, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k16_f16_f16, TL_F16, TL_F16, 16, TL_MMA_F16)
TL_MMA(mma_m16n8k16_f32_bf16, TL_BF16, TL_BF16, 16, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k8_f32_bf16, TL_BF16, TL_BF16, 8, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k8_f32_tf32, TL_TF32, TL_TF32, 8, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k4_f32_tf32, TL_TF32, TL_TF32, 4, TL_MMA_16_ROWS)
// float32 as a sum of two tf32, for `blocks` of 8 columns, as on the device. `second` and `third`: which registers of a the
// instruction has there.
namespace detail {
inline float below_tf32(float x, float larger) {
  return __builtin_fmaf(x, larger, -bits_float(float_bits(x) & 0xffffe000u));
}
}  // namespace detail
#define TL_MMA_BY_THREE(name, blocks, second, third)                                                     \
  TL_DEVICE void name(void* c_, const void* a_, const void* b_) {                                        \
    float* c = (float*)c_;                                                                               \
    const float* all = (const float*)a_;                                                                 \
    const float* b = (const float*)b_;                                                                   \
    const float a[4] = {all[0], all[second], all[third], all[3]};                                        \
    float a_low[4], b_low[2 * blocks];                                                                   \
    for (int r = 0; r < 4; ++r) a_low[r] = detail::below_tf32(a[r], 0x1.000004p+0f);                     \
    for (int r = 0; r < 2 * blocks; ++r) b_low[r] = detail::below_tf32(b[r], 0x1.000002p+0f);            \
    for (int j = 0; j < blocks; ++j) mma_m16n8k8_f32_tf32(c + 4 * j, a_low, b + 2 * j);                  \
    for (int j = 0; j < blocks; ++j) mma_m16n8k8_f32_tf32(c + 4 * j, a, b_low + 2 * j);                  \
    for (int j = 0; j < blocks; ++j) mma_m16n8k8_f32_tf32(c + 4 * j, a, b + 2 * j);                      \
  }
TL_MMA_BY_THREE(mma_m16n32k8_f32_tf32x3, 4, 1, 2)
TL_MMA_BY_THREE(mma_m16n16k8_f32_tf32x3, 2, 1, 2)
TL_MMA_BY_THREE(mma_m16n8k8_f32_tf32x3, 1, 1, 2)
TL_MMA_BY_THREE(mma_m16n32k8_f32_tf32x3_pairs, 4, 2, 1)
TL_MMA_BY_THREE(mma_m16n16k8_f32_tf32x3_pairs, 2, 2, 1)
TL_MMA_BY_THREE(mma_m16n8k8_f32_tf32x3_pairs, 1, 2, 1)
#undef TL_MMA_BY_THREE
TL_MMA(mma_m16n8k32_s32_s8, TL_S8, TL_S8, 32, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k32_s32_s8_u8, TL_S8, TL_U8, 32, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k32_s32_u8_s8, TL_U8, TL_S8, 32, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k32_s32_u8, TL_U8, TL_U8, 32, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k16_s32_s8, TL_S8, TL_S8, 16, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k16_s32_s8_u8, TL_S8, TL_U8, 16, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k16_s32_u8_s8, TL_U8, TL_S8, 16, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k16_s32_u8, TL_U8, TL_U8, 16, TL_MMA_16_ROWS)
TL_MMA(mma_m8n8k16_s32_s8, TL_S8, TL_S8, 16, TL_MMA_8_ROWS)
TL_MMA(mma_m8n8k16_s32_s8_u8, TL_S8, TL_U8, 16, TL_MMA_8_ROWS)
TL_MMA(mma_m8n8k16_s32_u8_s8, TL_U8, TL_S8, 16, TL_MMA_8_ROWS)
TL_MMA(mma_m8n8k16_s32_u8, TL_U8, TL_U8, 16, TL_MMA_8_ROWS)
TL_MMA(mma_m16n8k64_s32_s4, TL_S4, TL_S4, 64, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k64_s32_s4_u4, TL_S4, TL_U4, 64, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k64_s32_u4_s4, TL_U4, TL_S4, 64, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k64_s32_u4, TL_U4, TL_U4, 64, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k32_s32_s4, TL_S4, TL_S4, 32, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k32_s32_s4_u4, TL_S4, TL_U4, 32, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k32_s32_u4_s4, TL_U4, TL_S4, 32, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k32_s32_u4, TL_U4, TL_U4, 32, TL_MMA_16_ROWS)
TL_MMA(mma_m8n8k32_s32_s4, TL_S4, TL_S4, 32, TL_MMA_8_ROWS)
TL_MMA(mma_m8n8k32_s32_s4_u4, TL_S4, TL_U4, 32, TL_MMA_8_ROWS)
TL_MMA(mma_m8n8k32_s32_u4_s4, TL_U4, TL_S4, 32, TL_MMA_8_ROWS)
TL_MMA(mma_m8n8k32_s32_u4, TL_U4, TL_U4, 32, TL_MMA_8_ROWS)
TL_MMA(mma_m16n8k32_f32_e4m3, TL_E4M3, TL_E4M3, 32, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k32_f32_e5m2, TL_E5M2, TL_E5M2, 32, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k32_f32_e4m3_e5m2, TL_E4M3, TL_E5M2, 32, TL_MMA_16_ROWS)
TL_MMA(mma_m16n8k32_f32_e5m2_e4m3, TL_E5M2, TL_E4M3, 32, TL_MMA_16_ROWS)
#undef TL_MMA

// The 4 x 4 matrix of 32-bit words that four neighbouring lanes hold as rows, transposed: word r of lane t becomes word t
// of lane r (of their four).
TL_DEVICE void transpose_quad(void* words) {
  uint32_t* w = (uint32_t*)words;
  for (int s = 1; s < 4; s *= 2) {
    bool upper = (threadIdx.x & s) != 0;
    for (int r = 0; r < 4; ++r) {
      if (r & s) continue;
      uint32_t other = shfl_xor(upper ? w[r] : w[r | s], s);
      if (upper) w[r] = other;
      else w[r | s] = other;
    }
  }
}

TL_DEVICE uint32_t vote_ballot(bool x) { return (uint32_t)tl_emu_ballot(x); }

}  // namespace tl
