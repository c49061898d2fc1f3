// Arithmetic that C++ has no word for.
#pragma once

// Integer functions under the names that CUDA and HIP give them.
#define TL_EXTREMES(type)                                            \
  TL_DEVICE type min(type a, type b) { return a < b ? a : b; }       \
  TL_DEVICE type max(type a, type b) { return a > b ? a : b; }
TL_EXTREMES(int)
TL_EXTREMES(unsigned)
TL_EXTREMES(long)
TL_EXTREMES(unsigned long)
TL_EXTREMES(long long)
TL_EXTREMES(unsigned long long)
#undef TL_EXTREMES
TL_DEVICE int abs(int x) { return x < 0 ? (int)(0u - (unsigned)x) : x; }
TL_DEVICE long long abs(long long x) { return x < 0 ? (long long)(0ull - (unsigned long long)x) : x; }
TL_DEVICE int __popc(unsigned x) { return __builtin_popcount(x); }
TL_DEVICE int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
TL_DEVICE int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
TL_DEVICE int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
// c + the sum of the four products of bytes (ISA, "Vector ALU Instructions: V_DOT4_I32_I8, V_DOT4_U32_U8").
TL_DEVICE int __dp4a(int a, int b, int c) { return __builtin_amdgcn_sdot4(a, b, c, false); }
TL_DEVICE unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return __builtin_amdgcn_udot4(a, b, c, false); }

namespace tl {

TL_DEVICE int dp4a(int a, int b, int c) { return __dp4a(a, b, c); }
TL_DEVICE unsigned dp4a(unsigned a, unsigned b, unsigned c) { return __dp4a(a, b, c); }

// The same on arrays of four bytes: *c += a[0] * b[0] + ... + a[3] * b[3].
TL_DEVICE void dot4_s8(void* c, const void* a, const void* b) { *(int*)c = dp4a(*(const int*)a, *(const int*)b, *(int*)c); }
TL_DEVICE void dot4_u8(void* c, const void* a, const void* b) {
  *(unsigned*)c = dp4a(*(const unsigned*)a, *(const unsigned*)b, *(unsigned*)c);
}

// Floating point to integer: toward zero, saturating, NaN to 0. C++ leaves what does not fit undefined. Every value of up
// to 32 bits is a double, whose comparisons cost no more than a float's.
namespace detail {
template <class To>
struct integer_limits;
#define TL_LIMITS(type, low, high)                    \
  template <>                                         \
  struct integer_limits<type> {                       \
    static TL_DEVICE type least() { return low; }     \
    static TL_DEVICE type greatest() { return high; } \
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

// Approximate functions, to be used only where the user allowed it (ISA, "Vector ALU Instructions: V_EXP_F32, ...").
namespace fast {
TL_DEVICE float exp2(float x) { return __builtin_amdgcn_exp2f(x); }
TL_DEVICE float log2(float x) { return __builtin_amdgcn_logf(x); }
TL_DEVICE float sqrt(float x) { return __builtin_amdgcn_sqrtf(x); }
TL_DEVICE float rsqrt(float x) { return __builtin_amdgcn_rsqf(x); }
TL_DEVICE float reciprocal(float x) { return __builtin_amdgcn_rcpf(x); }
// The instructions count in turns.
TL_DEVICE float sin(float x) { return __builtin_amdgcn_sinf(__builtin_amdgcn_fractf(x * 0.159154943f)); }
TL_DEVICE float cos(float x) { return __builtin_amdgcn_cosf(__builtin_amdgcn_fractf(x * 0.159154943f)); }
TL_DEVICE float exp(float x) { return fast::exp2(x * 1.44269504f); }
TL_DEVICE float exp10(float x) { return fast::exp2(x * 3.32192809f); }
TL_DEVICE float log(float x) { return fast::log2(x) * 0.693147181f; }
TL_DEVICE float log10(float x) { return fast::log2(x) * 0.301029996f; }
TL_DEVICE float divide(float a, float b) { return a * fast::reciprocal(b); }
TL_DEVICE float tan(float x) { return fast::divide(fast::sin(x), fast::cos(x)); }
TL_DEVICE float tanh(float x) { return 1.0f - 2.0f * fast::reciprocal(fast::exp(2.0f * x) + 1.0f); }
TL_DEVICE float pow(float a, float b) { return fast::exp2(b * fast::log2(a)); }
}  // namespace fast

}  // namespace tl
