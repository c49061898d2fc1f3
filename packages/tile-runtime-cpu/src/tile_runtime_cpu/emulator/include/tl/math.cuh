// Arithmetic: CUDA's names of C's functions, the header's own, and diagnostics.
#pragma once

extern "C" {
#define TL_LIBM_1(name) float name##f(float); double name(double);
#define TL_LIBM_2(name) float name##f(float, float); double name(double, double);
TL_LIBM_1(exp) TL_LIBM_1(exp2) TL_LIBM_1(exp10) TL_LIBM_1(expm1) TL_LIBM_1(log) TL_LIBM_1(log2) TL_LIBM_1(log10)
TL_LIBM_1(log1p) TL_LIBM_1(sin) TL_LIBM_1(cos) TL_LIBM_1(tan) TL_LIBM_1(sinh) TL_LIBM_1(cosh) TL_LIBM_1(tanh)
TL_LIBM_1(asin) TL_LIBM_1(acos) TL_LIBM_1(atan) TL_LIBM_1(asinh) TL_LIBM_1(acosh) TL_LIBM_1(atanh) TL_LIBM_1(erf)
TL_LIBM_1(sqrt) TL_LIBM_1(cbrt) TL_LIBM_1(floor) TL_LIBM_1(ceil) TL_LIBM_1(round) TL_LIBM_1(trunc) TL_LIBM_1(rint)
TL_LIBM_1(nearbyint) TL_LIBM_1(fabs)
TL_LIBM_2(pow) TL_LIBM_2(fmod) TL_LIBM_2(atan2) TL_LIBM_2(fmin) TL_LIBM_2(fmax) TL_LIBM_2(copysign) TL_LIBM_2(hypot)
TL_LIBM_2(remainder)
#undef TL_LIBM_1
#undef TL_LIBM_2
float fmaf(float, float, float);
double fma(double, double, double);
float ldexpf(float, int);
double ldexp(double, int);
int abs(int);
void* memcpy(void*, const void*, unsigned long);
void* memset(void*, int, unsigned long);
int snprintf(char*, unsigned long, const char*, ...);
}

TL_DEVICE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
TL_DEVICE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
template <class T>
TL_DEVICE T min(T a, T b) { return b < a ? b : a; }
template <class T>
TL_DEVICE T max(T a, T b) { return a < b ? b : a; }
TL_DEVICE float min(float a, float b) { return __builtin_fminf(a, b); }
TL_DEVICE float max(float a, float b) { return __builtin_fmaxf(a, b); }
TL_DEVICE double min(double a, double b) { return __builtin_fmin(a, b); }
TL_DEVICE double max(double a, double b) { return __builtin_fmax(a, b); }
TL_DEVICE bool isnan(float x) { return __builtin_isnan(x); }
TL_DEVICE bool isnan(double x) { return __builtin_isnan(x); }
TL_DEVICE bool isinf(float x) { return __builtin_isinf(x); }
TL_DEVICE bool isinf(double x) { return __builtin_isinf(x); }
TL_DEVICE bool isfinite(float x) { return __builtin_isfinite(x); }
TL_DEVICE bool isfinite(double x) { return __builtin_isfinite(x); }

TL_DEVICE long abs(long x) { return x < 0 ? (long)(0ul - (unsigned long)x) : x; }
TL_DEVICE long long abs(long long x) { return x < 0 ? (long long)(0ull - (unsigned long long)x) : x; }
TL_DEVICE int __popc(unsigned x) { return __builtin_popcount(x); }
TL_DEVICE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
TL_DEVICE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
TL_DEVICE int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
TL_DEVICE int __ffs(int x) { return __builtin_ffs(x); }
TL_DEVICE int __float_as_int(float x) { return (int)tl::detail::float_bits(x); }
TL_DEVICE unsigned __float_as_uint(float x) { return tl::detail::float_bits(x); }
TL_DEVICE float __int_as_float(int x) { return tl::detail::bits_float((uint32_t)x); }
TL_DEVICE float __uint_as_float(unsigned x) { return tl::detail::bits_float(x); }
TL_DEVICE int __dp4a(int a, int b, int c) {
  unsigned sum = (unsigned)c;
  for (int i = 0; i < 32; i += 8) sum += (unsigned)((int8_t)(a >> i) * (int8_t)(b >> i));
  return (int)sum;
}
TL_DEVICE unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 255u) * (b >> i & 255u);
  return c;
}

namespace tl {

TL_DEVICE int dp4a(int a, int b, int c) { return __dp4a(a, b, c); }
TL_DEVICE unsigned dp4a(unsigned a, unsigned b, unsigned c) { return __dp4a(a, b, c); }
TL_DEVICE unsigned prmt(unsigned a, unsigned b, unsigned chosen) {
  const uint64_t bytes = (uint64_t)b << 32 | a;
  unsigned word = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned digit = chosen >> 4 * i, byte = bytes >> 8 * (digit & 7) & 255u;
    word |= (digit & 8 ? (byte & 128u ? 255u : 0u) : byte) << 8 * i;
  }
  return word;
}

namespace detail {

// A float with an odd last bit stands for all numbers between its neighbours: the second rounding sees which side they are.
TL_DEVICE uint16_t f16_fma(uint16_t a, uint16_t b, uint16_t c) {
  const double sum = (double)f16_to_float(a) * f16_to_float(b) + f16_to_float(c);
  const float near = (float)sum;
  if ((double)near == sum || near != near) return f16_from_float(near);
  const bool beyond = near < 0 ? near < sum : near > sum;
  return f16_from_float(bits_float((float_bits(near) - beyond) | 1u));
}

}  // namespace detail

TL_DEVICE unsigned fma_halves(unsigned a, unsigned b, unsigned c) {
  using namespace detail;
  return (unsigned)f16_fma(high_16(a), high_16(b), high_16(c)) << 16 | f16_fma(low_16(a), low_16(b), low_16(c));
}
#define TL_DOT4(name, a_type, b_type)                                                              \
  TL_DEVICE void name(void* c, const void* a, const void* b) {                                     \
    unsigned sum = *(unsigned*)c;                                                                  \
    for (int i = 0; i < 4; ++i) sum += (unsigned)(((const a_type*)a)[i] * ((const b_type*)b)[i]);  \
    *(unsigned*)c = sum;                                                                           \
  }
TL_DOT4(dot4_s8, int8_t, int8_t)
TL_DOT4(dot4_u8, uint8_t, uint8_t)
TL_DOT4(dot4_s8_u8, int8_t, uint8_t)
TL_DOT4(dot4_u8_s8, uint8_t, int8_t)
#undef TL_DOT4

TL_DEVICE void fma_f32(void* c, const void* a, const void* b) {
  *(float*)c = __builtin_fmaf(*(const float*)a, *(const float*)b, *(float*)c);
}
TL_DEVICE void fma_f64(void* c, const void* a, const void* b) {
  *(double*)c = __builtin_fma(*(const double*)a, *(const double*)b, *(double*)c);
}
TL_DEVICE void mad_s32(void* c, const void* a, const void* b) {
  *(unsigned*)c += *(const unsigned*)a * *(const unsigned*)b;
}

// Floating point to integer: toward zero, saturating, NaN to 0.
namespace detail {
template <class T>
struct width_of {
  static constexpr int value = 8 * sizeof(T);
};
template <int width, bool is_signed>
struct width_of<narrow_int<width, is_signed>> {
  static constexpr int value = width;
};
}  // namespace detail

template <class To, class From>
TL_DEVICE To to_integer(From value) {
  const bool is_signed = (To)-1 < (To)0;
  const int bits = detail::width_of<To>::value - is_signed;
  const double limit = bits == 64 ? 18446744073709551616.0 : (double)(1ull << bits % 64);
  double x = (double)value;
  if (x != x) return (To)0;
  if (x >= limit) return (To)(bits == 0 ? 0ull : ~0ull >> (64 - bits) % 64);
  if (x <= (is_signed ? -limit : 0.0)) return (To)(is_signed ? ~0ull << bits : 0ull);
  return (To)x;
}

// Exact here: an approximation differs from chip to chip, and tests have tolerances for it.
namespace fast {
TL_DEVICE float exp2(float x) { return ::exp2f(x); }
TL_DEVICE float log2(float x) { return ::log2f(x); }
TL_DEVICE float sin(float x) { return ::sinf(x); }
TL_DEVICE float cos(float x) { return ::cosf(x); }
TL_DEVICE float tanh(float x) { return ::tanhf(x); }
TL_DEVICE float sqrt(float x) { return ::sqrtf(x); }
TL_DEVICE float rsqrt(float x) { return ::rsqrtf(x); }
TL_DEVICE float reciprocal(float x) { return 1.0f / x; }
TL_DEVICE float exp(float x) { return ::expf(x); }
TL_DEVICE float exp10(float x) { return ::exp10f(x); }
TL_DEVICE float log(float x) { return ::logf(x); }
TL_DEVICE float log10(float x) { return ::log10f(x); }
TL_DEVICE float tan(float x) { return ::tanf(x); }
TL_DEVICE float divide(float a, float b) { return a / b; }
TL_DEVICE float pow(float a, float b) { return ::powf(a, b); }
}  // namespace fast

template <class... Arguments>
inline void print(const char* format, Arguments... arguments) {
  char text[512];
  snprintf(text, sizeof text, format, arguments...);
  tl_emu_print(text);
}

TL_DEVICE void device_assert(bool condition, int code, const char* = "") {
  if (!condition) tl_emu_assert_failed(code);
}

}  // namespace tl
