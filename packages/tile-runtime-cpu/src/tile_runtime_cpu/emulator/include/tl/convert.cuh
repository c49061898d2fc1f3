// Bits of narrow floating types from and to float, to nearest even; float8 is done in types.cuh.
#pragma once

namespace tl {
namespace detail {

TL_DEVICE uint32_t float_bits(float x) {
  uint32_t r;
  __builtin_memcpy(&r, &x, 4);
  return r;
}
TL_DEVICE float bits_float(uint32_t x) {
  float r;
  __builtin_memcpy(&r, &x, 4);
  return r;
}

// The compiler's _Float16 serves for conversions only: with some compilers its arithmetic keeps float between operations.
TL_DEVICE uint16_t f16_from_float(float x) {
  _Float16 half = (_Float16)x;
  uint16_t r;
  __builtin_memcpy(&r, &half, 2);
  return r;
}
TL_DEVICE float f16_to_float(uint16_t x) {
  _Float16 half;
  __builtin_memcpy(&half, &x, 2);
  return (float)half;
}
TL_DEVICE uint16_t f16_add(uint16_t a, uint16_t b) { return f16_from_float(f16_to_float(a) + f16_to_float(b)); }
TL_DEVICE uint16_t f16_subtract(uint16_t a, uint16_t b) { return f16_from_float(f16_to_float(a) - f16_to_float(b)); }
TL_DEVICE uint16_t f16_multiply(uint16_t a, uint16_t b) { return f16_from_float(f16_to_float(a) * f16_to_float(b)); }

TL_DEVICE uint16_t bf16_from_float(float x) {
  uint32_t u = float_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

TL_DEVICE uint16_t low_16(uint32_t x) { return (uint16_t)x; }
TL_DEVICE uint16_t high_16(uint32_t x) { return (uint16_t)(x >> 16); }

}  // namespace detail
// To nearest, ties away from zero: half of the last kept bit is added to the magnitude.
TL_DEVICE float to_tf32(float x) {
  uint32_t u = detail::float_bits(x);
  if ((u & 0x7f800000u) == 0x7f800000u) return x;
  return detail::bits_float((u + 0x1000u) & ~0x1fffu);
}

}  // namespace tl
