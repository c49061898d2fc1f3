// Bits of narrow floating types from and to float (PTX ISA, "Data Movement and Conversion Instructions: cvt").
// Rounding is to nearest even. float8 saturates to the largest finite value and keeps NaN.
#pragma once

namespace tl {
namespace detail {

TL_DEVICE uint32_t float_bits(float x) { return __float_as_uint(x); }
TL_DEVICE float bits_float(uint32_t x) { return __uint_as_float(x); }

TL_DEVICE uint16_t f16_from_float(float x) {
  uint16_t r;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}

TL_DEVICE float f16_to_float(uint16_t x) {
  float r;
  asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}

TL_DEVICE uint16_t bf16_from_float(float x) {
#if TL_ARCH >= 800
  uint16_t r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
#else
  uint32_t u = float_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
}

#if TL_ARCH >= 890
TL_DEVICE uint8_t e4m3_from_float(float x) {
  uint16_t r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
  return (uint8_t)r;
}

TL_DEVICE uint8_t e5m2_from_float(float x) {
  uint16_t r;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
  return (uint8_t)r;
}
#define TL_NATIVE_FP8 1
#endif

// Operations that the hardware rounds once (PTX ISA, "Half Precision Floating-Point Instructions").
#define TL_16_BIT_OPERATION(name, text)                                  \
  TL_DEVICE uint16_t name(uint16_t a, uint16_t b) {                      \
    uint16_t r;                                                          \
    asm(text " %0, %1, %2;" : "=h"(r) : "h"(a), "h"(b));                 \
    return r;                                                            \
  }
TL_16_BIT_OPERATION(f16_add, "add.rn.f16")
TL_16_BIT_OPERATION(f16_subtract, "sub.rn.f16")
TL_16_BIT_OPERATION(f16_multiply, "mul.rn.f16")
#if TL_ARCH >= 900
TL_16_BIT_OPERATION(bf16_add, "add.rn.bf16")
TL_16_BIT_OPERATION(bf16_subtract, "sub.rn.bf16")
TL_16_BIT_OPERATION(bf16_multiply, "mul.rn.bf16")
#define TL_NATIVE_BF16 1
#endif
#undef TL_16_BIT_OPERATION

// Halves of a register, by assembly: what is done to both then stays one instruction for pairs.
TL_DEVICE uint16_t low_16(uint32_t x) {
  uint16_t r;
  asm("{\n.reg .b16 other;\nmov.b32 {%0, other}, %1;\n}" : "=h"(r) : "r"(x));
  return r;
}
TL_DEVICE uint16_t high_16(uint32_t x) {
  uint16_t r;
  asm("{\n.reg .b16 other;\nmov.b32 {other, %0}, %1;\n}" : "=h"(r) : "r"(x));
  return r;
}

}  // namespace detail
#if TL_HAS(800)
// A float rounded to tf32, to nearest, ties away from zero; mma ignores the lower bits of operands not rounded.
TL_DEVICE float to_tf32(float x) {
  uint32_t r;
#if TL_ARCH >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
#else
  r = detail::float_bits(x);
#endif
  return detail::bits_float(r);
}
#endif

}  // namespace tl
