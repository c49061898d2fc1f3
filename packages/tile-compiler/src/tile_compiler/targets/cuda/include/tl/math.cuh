// Arithmetic that C++ has no word for.
#pragma once

namespace tl {

// c + the sum of the four products of signed bytes (PTX ISA, "Integer Arithmetic Instructions: dp4a").
TL_DEVICE int dp4a(int a, int b, int c) { return __dp4a(a, b, c); }
TL_DEVICE unsigned dp4a(unsigned a, unsigned b, unsigned c) { return __dp4a(a, b, c); }
// Each digit of `chosen` takes a byte of b and a, or eight of its sign (PTX ISA, "Data Movement Instructions: prmt").
TL_DEVICE unsigned prmt(unsigned a, unsigned b, unsigned chosen) {
  unsigned word;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(word) : "r"(a), "r"(b), "r"(chosen));
  return word;
}
// a * b + c for the two halves of words, each rounded once (PTX ISA, "Half Precision Floating Point Instructions: fma").
TL_DEVICE unsigned fma_halves(unsigned a, unsigned b, unsigned c) {
  unsigned word;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(word) : "r"(a), "r"(b), "r"(c));
  return word;
}
// dp4a on arrays of four bytes, which may differ in sign: *c += a[0] * b[0] + ... + a[3] * b[3].
#define TL_DOT4(name, text)                                                                   \
  TL_DEVICE void name(void* c, const void* a, const void* b) {                                \
    asm(text " %0, %1, %2, %0;" : "+r"(*(int*)c) : "r"(*(const int*)a), "r"(*(const int*)b)); \
  }
TL_DOT4(dot4_s8, "dp4a.s32.s32")
TL_DOT4(dot4_u8, "dp4a.u32.u32")
TL_DOT4(dot4_s8_u8, "dp4a.s32.u32")
TL_DOT4(dot4_u8_s8, "dp4a.u32.s32")
#undef TL_DOT4

// *c += *a * *b, rounded once (PTX ISA: fma.rn.f32, fma.rn.f64, mad.lo.s32).
#define TL_MULTIPLY_ADD(name, type, letter, text)                                                        \
  TL_DEVICE void name(void* c, const void* a, const void* b) {                                           \
    asm(text " %0, %1, %2, %0;" : "+" letter(*(type*)c) : letter(*(const type*)a), letter(*(const type*)b)); \
  }
TL_MULTIPLY_ADD(fma_f32, float, "f", "fma.rn.f32")
TL_MULTIPLY_ADD(fma_f64, double, "d", "fma.rn.f64")
TL_MULTIPLY_ADD(mad_s32, int, "r", "mad.lo.s32")
#undef TL_MULTIPLY_ADD

// Floating point to integer: toward zero, saturating, NaN to 0. C++ leaves what does not fit undefined.
namespace detail {
template <class To>
struct integer_limits;
#define TL_LIMITS(type, low, high)        \
  template <>                             \
  struct integer_limits<type> {           \
    static TL_DEVICE type least() { return low; }       \
    static TL_DEVICE type greatest() { return high; }   \
  };
TL_LIMITS(int8_t, -128, 127)
TL_LIMITS(uint8_t, 0, 255)
TL_LIMITS(int16_t, -32768, 32767)
TL_LIMITS(uint16_t, 0, 65535)
TL_LIMITS(int32_t, -2147483647 - 1, 2147483647)
TL_LIMITS(uint32_t, 0, 4294967295u)
TL_LIMITS(int64_t, -9223372036854775807ll - 1, 9223372036854775807ll)
TL_LIMITS(uint64_t, 0, 18446744073709551615ull)
#undef TL_LIMITS
}  // namespace detail

template <class To, class From>
TL_DEVICE To to_integer(From value) {
  double x = (double)value;
  if (x != x) return (To)0;
  if (x <= (double)detail::integer_limits<To>::least()) return (To)detail::integer_limits<To>::least();
  if (x >= (double)detail::integer_limits<To>::greatest()) return (To)detail::integer_limits<To>::greatest();
  return (To)x;
}
// Without a detour through double, which most GPUs do slowly (PTX ISA, "cvt": .rzi saturates and turns NaN into 0).
template <>
TL_DEVICE int32_t to_integer<int32_t, float>(float x) { return __float2int_rz(x); }
template <>
TL_DEVICE uint32_t to_integer<uint32_t, float>(float x) { return __float2uint_rz(x); }
template <>
TL_DEVICE int8_t to_integer<int8_t, float>(float x) {
  int v = __float2int_rz(x);
  return (int8_t)(v < -128 ? -128 : v > 127 ? 127 : v);
}
template <>
TL_DEVICE uint8_t to_integer<uint8_t, float>(float x) {
  int v = __float2int_rz(x);
  return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

// Approximate functions, to be used only where the user allowed it (PTX ISA, "Floating-Point Instructions": .approx).
namespace fast {
#define TL_APPROXIMATE(name, text)                      \
  TL_DEVICE float name(float x) {                       \
    float r;                                            \
    asm(text " %0, %1;" : "=f"(r) : "f"(x));            \
    return r;                                           \
  }
TL_APPROXIMATE(exp2, "ex2.approx.ftz.f32")
TL_APPROXIMATE(log2, "lg2.approx.ftz.f32")
TL_APPROXIMATE(sin, "sin.approx.ftz.f32")
TL_APPROXIMATE(cos, "cos.approx.ftz.f32")
TL_APPROXIMATE(tanh, "tanh.approx.f32")
TL_APPROXIMATE(sqrt, "sqrt.approx.ftz.f32")
TL_APPROXIMATE(rsqrt, "rsqrt.approx.ftz.f32")
TL_APPROXIMATE(reciprocal, "rcp.approx.ftz.f32")
#undef TL_APPROXIMATE
TL_DEVICE float exp(float x) { return fast::exp2(x * 1.44269504f); }
TL_DEVICE float exp10(float x) { return fast::exp2(x * 3.32192809f); }
TL_DEVICE float log(float x) { return fast::log2(x) * 0.693147181f; }
TL_DEVICE float log10(float x) { return fast::log2(x) * 0.301029996f; }
// div.full: 2 ulp over the whole range, where div.approx gives 0 for large divisors.
TL_DEVICE float divide(float a, float b) {
  float r;
  asm("div.full.ftz.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
TL_DEVICE float tan(float x) { return fast::divide(fast::sin(x), fast::cos(x)); }
TL_DEVICE float pow(float a, float b) { return fast::exp2(b * fast::log2(a)); }
}  // namespace fast

}  // namespace tl
