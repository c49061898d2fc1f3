// Matrix multiply-accumulate of a warp, c += a * b (PTX ISA, "Matrix multiply-accumulate operation using mma
// instruction": its figures define which lane and register hold which element; a is row, b is column major).
//
// Names: mma_<shape>_<accumulator>_<a>[_<b>]. c, a, b are the lane's registers of 32 bits, in local arrays.
// targets/cuda/instructions/mma.py declares which element of a matrix each of them holds.
#pragma once

namespace tl {

// Accumulator of four 32-bit registers: `type` float ("f") or int ("r").
#define TL_MMA_C4_A4_B2(name, type, letter, text)                                                                  \
  TL_DEVICE void name(void* c_, const void* a_, const void* b_) {                                                  \
    type* c = (type*)c_;                                                                                           \
    const uint32_t* a = (const uint32_t*)a_;                                                                       \
    const uint32_t* b = (const uint32_t*)b_;                                                                       \
    asm volatile("mma.sync.aligned." text " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"       \
                 : "+" letter(c[0]), "+" letter(c[1]), "+" letter(c[2]), "+" letter(c[3])                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                              \
  }
#define TL_MMA_C4_A2_B1(name, type, letter, text)                                                                  \
  TL_DEVICE void name(void* c_, const void* a_, const void* b_) {                                                  \
    type* c = (type*)c_;                                                                                           \
    const uint32_t* a = (const uint32_t*)a_;                                                                       \
    const uint32_t* b = (const uint32_t*)b_;                                                                       \
    asm volatile("mma.sync.aligned." text " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"                   \
                 : "+" letter(c[0]), "+" letter(c[1]), "+" letter(c[2]), "+" letter(c[3])                          \
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));                                                               \
  }
// 8 rows: one register of a and b, two of c.
#define TL_MMA_C2_A1_B1(name, type, letter, text)                                                                  \
  TL_DEVICE void name(void* c_, const void* a_, const void* b_) {                                                  \
    type* c = (type*)c_;                                                                                           \
    const uint32_t* a = (const uint32_t*)a_;                                                                       \
    const uint32_t* b = (const uint32_t*)b_;                                                                       \
    asm volatile("mma.sync.aligned." text " {%0, %1}, {%2}, {%3}, {%0, %1};"                                       \
                 : "+" letter(c[0]), "+" letter(c[1])                                                              \
                 : "r"(a[0]), "r"(b[0]));                                                                          \
  }
// Accumulator of four f16 in two registers.
#define TL_MMA_C2_A4_B2(name, text)                                                                                \
  TL_DEVICE void name(void* c_, const void* a_, const void* b_) {                                                  \
    uint32_t* c = (uint32_t*)c_;                                                                                   \
    const uint32_t* a = (const uint32_t*)a_;                                                                       \
    const uint32_t* b = (const uint32_t*)b_;                                                                       \
    asm volatile("mma.sync.aligned." text " {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"                       \
                 : "+r"(c[0]), "+r"(c[1])                                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                              \
  }
#define TL_MMA_C2_A2_B1(name, text)                                                                                \
  TL_DEVICE void name(void* c_, const void* a_, const void* b_) {                                                  \
    uint32_t* c = (uint32_t*)c_;                                                                                   \
    const uint32_t* a = (const uint32_t*)a_;                                                                       \
    const uint32_t* b = (const uint32_t*)b_;                                                                       \
    asm volatile("mma.sync.aligned." text " {%0, %1}, {%2, %3}, {%4}, {%0, %1};"                                   \
                 : "+r"(c[0]), "+r"(c[1])                                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));                                                               \
  }

TL_MMA_C4_A2_B1(mma_m16n8k8_f32_f16, float, "f", "m16n8k8.row.col.f32.f16.f16.f32")
TL_MMA_C2_A2_B1(mma_m16n8k8_f16_f16, "m16n8k8.row.col.f16.f16.f16.f16")

TL_MMA_C2_A1_B1(mma_m8n8k16_s32_s8, int, "r", "m8n8k16.row.col.s32.s8.s8.s32")
TL_MMA_C2_A1_B1(mma_m8n8k16_s32_s8_u8, int, "r", "m8n8k16.row.col.s32.s8.u8.s32")
TL_MMA_C2_A1_B1(mma_m8n8k16_s32_u8_s8, int, "r", "m8n8k16.row.col.s32.u8.s8.s32")
TL_MMA_C2_A1_B1(mma_m8n8k16_s32_u8, int, "r", "m8n8k16.row.col.s32.u8.u8.s32")
TL_MMA_C2_A1_B1(mma_m8n8k32_s32_s4, int, "r", "m8n8k32.row.col.s32.s4.s4.s32")
TL_MMA_C2_A1_B1(mma_m8n8k32_s32_s4_u4, int, "r", "m8n8k32.row.col.s32.s4.u4.s32")
TL_MMA_C2_A1_B1(mma_m8n8k32_s32_u4_s4, int, "r", "m8n8k32.row.col.s32.u4.s4.s32")
TL_MMA_C2_A1_B1(mma_m8n8k32_s32_u4, int, "r", "m8n8k32.row.col.s32.u4.u4.s32")

#if TL_HAS(800)
TL_MMA_C4_A4_B2(mma_m16n8k16_f32_f16, float, "f", "m16n8k16.row.col.f32.f16.f16.f32")
TL_MMA_C2_A4_B2(mma_m16n8k16_f16_f16, "m16n8k16.row.col.f16.f16.f16.f16")
TL_MMA_C4_A4_B2(mma_m16n8k16_f32_bf16, float, "f", "m16n8k16.row.col.f32.bf16.bf16.f32")
TL_MMA_C4_A2_B1(mma_m16n8k8_f32_bf16, float, "f", "m16n8k8.row.col.f32.bf16.bf16.f32")
TL_MMA_C4_A4_B2(mma_m16n8k8_f32_tf32, float, "f", "m16n8k8.row.col.f32.tf32.tf32.f32")
TL_MMA_C4_A2_B1(mma_m16n8k4_f32_tf32, float, "f", "m16n8k4.row.col.f32.tf32.tf32.f32")

// float32 as a sum of two tf32: what the instruction reads of it, the upper 11 bits, and the rest, of which it reads 11 bits as well.
// Small products come first; that of both rests, 2^-20 of the whole at most, is left out. For what is lost so, a's rests grow by two
// last bits and b's by one, as much in the mean. Products of `blocks` of 8 columns take turns, as each waits for the one before it.
// `second` and `third`: which registers of a the instruction has there.
namespace detail {
TL_DEVICE float below_tf32(float x, float larger) {
  return fmaf(x, larger, -bits_float(float_bits(x) & 0xffffe000u));
}
}  // namespace detail
#define TL_MMA_BY_THREE(name, blocks, second, third, text)                                                         \
  TL_DEVICE void name(void* c_, const void* a_, const void* b_) {                                                  \
    float* c = (float*)c_;                                                                                         \
    const float* all = (const float*)a_;                                                                           \
    const float* b = (const float*)b_;                                                                             \
    const float a[4] = {all[0], all[second], all[third], all[3]};                                                  \
    float a_low[4], b_low[2 * blocks];                                                                             \
    _Pragma("unroll") for (int r = 0; r < 4; ++r) a_low[r] = detail::below_tf32(a[r], 0x1.000004p+0f);             \
    _Pragma("unroll") for (int r = 0; r < 2 * blocks; ++r) b_low[r] = detail::below_tf32(b[r], 0x1.000002p+0f);    \
    _Pragma("unroll") for (int j = 0; j < blocks; ++j) mma_m16n8k8_f32_tf32(c + 4 * j, a_low, b + 2 * j);          \
    _Pragma("unroll") for (int j = 0; j < blocks; ++j) mma_m16n8k8_f32_tf32(c + 4 * j, a, b_low + 2 * j);          \
    _Pragma("unroll") for (int j = 0; j < blocks; ++j) mma_m16n8k8_f32_tf32(c + 4 * j, a, b + 2 * j);              \
  }
TL_MMA_BY_THREE(mma_m16n32k8_f32_tf32x3, 4, 1, 2, "m16n8k8.row.col.f32.tf32.tf32.f32")
TL_MMA_BY_THREE(mma_m16n16k8_f32_tf32x3, 2, 1, 2, "m16n8k8.row.col.f32.tf32.tf32.f32")
TL_MMA_BY_THREE(mma_m16n8k8_f32_tf32x3, 1, 1, 2, "m16n8k8.row.col.f32.tf32.tf32.f32")
// Elements 2t and 2t + 1 of a lane along k stand for the instruction's t and t + 4: the order of k is free where a and b agree.
TL_MMA_BY_THREE(mma_m16n32k8_f32_tf32x3_pairs, 4, 2, 1, "m16n8k8.row.col.f32.tf32.tf32.f32")
TL_MMA_BY_THREE(mma_m16n16k8_f32_tf32x3_pairs, 2, 2, 1, "m16n8k8.row.col.f32.tf32.tf32.f32")
TL_MMA_BY_THREE(mma_m16n8k8_f32_tf32x3_pairs, 1, 2, 1, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef TL_MMA_BY_THREE

TL_MMA_C4_A4_B2(mma_m16n8k32_s32_s8, int, "r", "m16n8k32.row.col.s32.s8.s8.s32")
TL_MMA_C4_A4_B2(mma_m16n8k32_s32_s8_u8, int, "r", "m16n8k32.row.col.s32.s8.u8.s32")
TL_MMA_C4_A4_B2(mma_m16n8k32_s32_u8_s8, int, "r", "m16n8k32.row.col.s32.u8.s8.s32")
TL_MMA_C4_A4_B2(mma_m16n8k32_s32_u8, int, "r", "m16n8k32.row.col.s32.u8.u8.s32")
TL_MMA_C4_A2_B1(mma_m16n8k16_s32_s8, int, "r", "m16n8k16.row.col.s32.s8.s8.s32")
TL_MMA_C4_A2_B1(mma_m16n8k16_s32_s8_u8, int, "r", "m16n8k16.row.col.s32.s8.u8.s32")
TL_MMA_C4_A2_B1(mma_m16n8k16_s32_u8_s8, int, "r", "m16n8k16.row.col.s32.u8.s8.s32")
TL_MMA_C4_A2_B1(mma_m16n8k16_s32_u8, int, "r", "m16n8k16.row.col.s32.u8.u8.s32")
TL_MMA_C4_A4_B2(mma_m16n8k64_s32_s4, int, "r", "m16n8k64.row.col.s32.s4.s4.s32")
TL_MMA_C4_A4_B2(mma_m16n8k64_s32_s4_u4, int, "r", "m16n8k64.row.col.s32.s4.u4.s32")
TL_MMA_C4_A4_B2(mma_m16n8k64_s32_u4_s4, int, "r", "m16n8k64.row.col.s32.u4.s4.s32")
TL_MMA_C4_A4_B2(mma_m16n8k64_s32_u4, int, "r", "m16n8k64.row.col.s32.u4.u4.s32")
TL_MMA_C4_A2_B1(mma_m16n8k32_s32_s4, int, "r", "m16n8k32.row.col.s32.s4.s4.s32")
TL_MMA_C4_A2_B1(mma_m16n8k32_s32_s4_u4, int, "r", "m16n8k32.row.col.s32.s4.u4.s32")
TL_MMA_C4_A2_B1(mma_m16n8k32_s32_u4_s4, int, "r", "m16n8k32.row.col.s32.u4.s4.s32")
TL_MMA_C4_A2_B1(mma_m16n8k32_s32_u4, int, "r", "m16n8k32.row.col.s32.u4.u4.s32")
#endif

#if TL_ARCH == 900
// This chip multiplies float8 by wgmma only: the assembler widens operands of mma.sync to f16, sums from zero and adds.
// Widened here, each is a product of f16 that sums in place: fewer registers and no additions. Every float8 is an f16.
namespace detail {
#define TL_WIDEN(name, type)                                                                                       \
  TL_DEVICE uint32_t name(uint32_t pair) {                                                                         \
    uint32_t wide;                                                                                                 \
    asm("cvt.rn.f16x2." type "x2 %0, %1;" : "=r"(wide) : "h"((uint16_t)pair));                                    \
    return wide;                                                                                                   \
  }
TL_WIDEN(widen_e4m3, "e4m3")
TL_WIDEN(widen_e5m2, "e5m2")
#undef TL_WIDEN
}  // namespace detail

// Elements 4t and 4t + 1 of a lane's four along k stand for f16's 2t and 2t + 1, then 4t + 2 and 4t + 3: the order of k
// is free where a and b agree.
#define TL_MMA_FLOAT8(name, of_a, of_b, text)                                                                      \
  TL_DEVICE void name(void* c, const void* a_, const void* b_) {                                                   \
    const uint32_t* a = (const uint32_t*)a_;                                                                       \
    const uint32_t* b = (const uint32_t*)b_;                                                                       \
    _Pragma("unroll") for (int half = 0; half < 32; half += 16) {                                                  \
      uint32_t wide_a[4], wide_b[2];                                                                               \
      _Pragma("unroll") for (int r = 0; r < 4; ++r) wide_a[r] = detail::widen_##of_a(a[r] >> half);                \
      _Pragma("unroll") for (int r = 0; r < 2; ++r) wide_b[r] = detail::widen_##of_b(b[r] >> half);                \
      mma_m16n8k16_f32_f16(c, wide_a, wide_b);                                                                     \
    }                                                                                                              \
  }
#elif TL_HAS(890)
#define TL_MMA_FLOAT8(name, of_a, of_b, text) TL_MMA_C4_A4_B2(name, float, "f", text)
#endif
#ifdef TL_MMA_FLOAT8
TL_MMA_FLOAT8(mma_m16n8k32_f32_e4m3, e4m3, e4m3, "m16n8k32.row.col.f32.e4m3.e4m3.f32")
TL_MMA_FLOAT8(mma_m16n8k32_f32_e5m2, e5m2, e5m2, "m16n8k32.row.col.f32.e5m2.e5m2.f32")
TL_MMA_FLOAT8(mma_m16n8k32_f32_e4m3_e5m2, e4m3, e5m2, "m16n8k32.row.col.f32.e4m3.e5m2.f32")
TL_MMA_FLOAT8(mma_m16n8k32_f32_e5m2_e4m3, e5m2, e4m3, "m16n8k32.row.col.f32.e5m2.e4m3.f32")
#undef TL_MMA_FLOAT8
#endif

#undef TL_MMA_C4_A4_B2
#undef TL_MMA_C4_A2_B1
#undef TL_MMA_C2_A1_B1
#undef TL_MMA_C2_A4_B2
#undef TL_MMA_C2_A2_B1

}  // namespace tl
