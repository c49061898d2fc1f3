// Bits of narrow floating types from and to float (ISA, "Vector ALU Instructions: V_CVT_F16_F32, V_CVT_F32_F16").
// Rounding is to nearest even. float8 saturates to the largest finite value and keeps NaN.
#pragma once

namespace tl {
namespace detail {

TL_DEVICE uint32_t float_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
TL_DEVICE float bits_float(uint32_t x) { return __builtin_bit_cast(float, x); }
TL_DEVICE uint64_t double_bits(double x) { return __builtin_bit_cast(uint64_t, x); }
TL_DEVICE double bits_double(uint64_t x) { return __builtin_bit_cast(double, x); }

TL_DEVICE _Float16 as_f16(uint16_t x) { return __builtin_bit_cast(_Float16, x); }
TL_DEVICE uint16_t f16_bits(_Float16 x) { return __builtin_bit_cast(uint16_t, x); }

TL_DEVICE uint16_t f16_from_float(float x) { return f16_bits((_Float16)x); }
TL_DEVICE float f16_to_float(uint16_t x) { return (float)as_f16(x); }

// Neither architecture has an instruction for it.
TL_DEVICE uint16_t bf16_from_float(float x) {
  uint32_t u = float_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

// Operations of f16 that the hardware rounds once.
TL_DEVICE uint16_t f16_add(uint16_t a, uint16_t b) { return f16_bits(as_f16(a) + as_f16(b)); }
TL_DEVICE uint16_t f16_subtract(uint16_t a, uint16_t b) { return f16_bits(as_f16(a) - as_f16(b)); }
TL_DEVICE uint16_t f16_multiply(uint16_t a, uint16_t b) { return f16_bits(as_f16(a) * as_f16(b)); }

TL_DEVICE uint16_t low_16(uint32_t x) { return (uint16_t)x; }
TL_DEVICE uint16_t high_16(uint32_t x) { return (uint16_t)(x >> 16); }

}  // namespace detail
}  // namespace tl
