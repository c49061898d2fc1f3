// The functions of C's math library that kernels call, under the same names, as no library is linked.
#pragma once

// Instructions, and sequences that the compiler writes itself for them.
#define TL_FUNCTION_1(name, builtin)                                       \
  TL_DEVICE float name##f(float x) { return builtin##f(x); }               \
  TL_DEVICE double name(double x) { return builtin(x); }
TL_FUNCTION_1(sqrt, __builtin_sqrt)
TL_FUNCTION_1(floor, __builtin_floor)
TL_FUNCTION_1(ceil, __builtin_ceil)
TL_FUNCTION_1(trunc, __builtin_trunc)
TL_FUNCTION_1(round, __builtin_round)
TL_FUNCTION_1(nearbyint, __builtin_nearbyint)
TL_FUNCTION_1(rint, __builtin_rint)
TL_FUNCTION_1(fabs, __builtin_fabs)
#undef TL_FUNCTION_1
#define TL_FUNCTION_2(name, builtin)                                         \
  TL_DEVICE float name##f(float x, float y) { return builtin##f(x, y); }     \
  TL_DEVICE double name(double x, double y) { return builtin(x, y); }
TL_FUNCTION_2(copysign, __builtin_copysign)
TL_FUNCTION_2(fmin, __builtin_fmin)
TL_FUNCTION_2(fmax, __builtin_fmax)
#undef TL_FUNCTION_2
TL_DEVICE float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
TL_DEVICE double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
TL_DEVICE bool isnan(float x) { return x != x; }
TL_DEVICE bool isnan(double x) { return x != x; }
TL_DEVICE bool isinf(float x) { return __builtin_fabsf(x) == __builtin_inff(); }
TL_DEVICE bool isinf(double x) { return __builtin_fabs(x) == __builtin_inf(); }
TL_DEVICE bool isfinite(float x) { return __builtin_fabsf(x) < __builtin_inff(); }
TL_DEVICE bool isfinite(double x) { return __builtin_fabs(x) < __builtin_inf(); }

// Within 2 units in the last place, denormal numbers included.
TL_DEVICE float expf(float x) { return __builtin_expf(x); }
TL_DEVICE float exp2f(float x) { return __builtin_exp2f(x); }
TL_DEVICE float logf(float x) { return __builtin_logf(x); }
TL_DEVICE float log2f(float x) { return __builtin_log2f(x); }
TL_DEVICE float log10f(float x) { return __builtin_log10f(x); }
TL_DEVICE float rsqrtf(float x) { return 1.0f / __builtin_sqrtf(x); }
TL_DEVICE double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
TL_DEVICE float exp10f(float x) {
  const float high = 3.32192802f, low = 7.05953696e-08f;  // log2(10) in two parts
  x = x < -60.0f ? -60.0f : x > 60.0f ? 60.0f : x;
  float product = x * high, lost = __builtin_fmaf(x, high, -product) + x * low;
  float power = __builtin_exp2f(product);
  return power < __builtin_inff() ? __builtin_fmaf(power, lost * 0.693147181f, power) : power;
}
// From e^(2x); an odd polynomial near zero (a fit over |x| < 0.625).
TL_DEVICE float tanhf(float x) {
  float size = __builtin_fabsf(x), square = x * x;
  if (size < 0.625f) {
    float p = -0.005717037f;
    p = __builtin_fmaf(p, square, 0.02065058f);
    p = __builtin_fmaf(p, square, -0.05374350f);
    p = __builtin_fmaf(p, square, 0.13331491f);
    p = __builtin_fmaf(p, square, -0.33333284f);
    return __builtin_fmaf(square * x, p, x);
  }
  return __builtin_copysignf(1.0f - 2.0f / (__builtin_expf(2.0f * size) + 1.0f), x);
}
// x + x p(x^2) near zero, 1 - e^q(|x|) beyond (fits over |x| < 0.93 and up to 4).
TL_DEVICE float erff(float x) {
  float size = __builtin_fabsf(x);
  if (size < 0.93f) {
    float square = x * x, p = -0.00059768936f;
    p = __builtin_fmaf(p, square, 0.0049909800f);
    p = __builtin_fmaf(p, square, -0.026765566f);
    p = __builtin_fmaf(p, square, 0.11281802f);
    p = __builtin_fmaf(p, square, -0.37612495f);
    p = __builtin_fmaf(p, square, 0.12837915f);
    return __builtin_fmaf(x, p, x);
  }
  size = size > 4.0f ? 4.0f : size;
  float q = -2.0828619e-05f;
  q = __builtin_fmaf(q, size, 0.00043139431f);
  q = __builtin_fmaf(q, size, -0.0041562547f);
  q = __builtin_fmaf(q, size, 0.025080616f);
  q = __builtin_fmaf(q, size, -0.10822038f);
  q = __builtin_fmaf(q, size, -0.63340086f);
  q = __builtin_fmaf(q, size, -1.1294883f);
  q = __builtin_fmaf(q, size, 0.00016920513f);
  return x != x ? x : __builtin_copysignf(1.0f - __builtin_expf(q), x);
}

// Of a double within 4 units in the last place; the float ones are computed in double, which these GPUs do at up to full
// speed, and round to within 0.51 units.
#define TL_SERIES_1(name)                                                        \
  TL_DEVICE double name(double x) { return tl::detail::name##_of(x); }
#define TL_SERIES_BOTH(name)                                                     \
  TL_SERIES_1(name)                                                              \
  TL_DEVICE float name##f(float x) { return (float)tl::detail::name##_of(x); }
TL_SERIES_1(exp)
TL_SERIES_1(exp2)
TL_SERIES_1(exp10)
TL_SERIES_1(log)
TL_SERIES_1(log2)
TL_SERIES_1(log10)
TL_SERIES_1(tanh)
TL_SERIES_1(erf)
TL_SERIES_BOTH(expm1)
TL_SERIES_BOTH(log1p)
TL_SERIES_BOTH(sin)
TL_SERIES_BOTH(cos)
TL_SERIES_BOTH(tan)
TL_SERIES_BOTH(sinh)
TL_SERIES_BOTH(cosh)
TL_SERIES_BOTH(asinh)
TL_SERIES_BOTH(acosh)
TL_SERIES_BOTH(atanh)
#undef TL_SERIES_BOTH
#undef TL_SERIES_1
#define TL_SERIES_2(name)                                                                     \
  TL_DEVICE double name(double x, double y) { return tl::detail::name##_of(x, y); }           \
  TL_DEVICE float name##f(float x, float y) { return (float)tl::detail::name##_of(x, y); }
TL_SERIES_2(pow)
TL_SERIES_2(atan2)
TL_SERIES_2(fmod)
TL_SERIES_2(hypot)
#undef TL_SERIES_2
TL_DEVICE double atan(double x) { return atan2(x, 1.0); }
TL_DEVICE float atanf(float x) { return (float)atan2((double)x, 1.0); }
TL_DEVICE double asin(double x) { return atan2(x, __builtin_sqrt((1.0 - x) * (1.0 + x))); }
TL_DEVICE float asinf(float x) { return (float)asin((double)x); }
TL_DEVICE double acos(double x) { return 2.0 * atan2(__builtin_sqrt(1.0 - x), __builtin_sqrt(1.0 + x)); }
TL_DEVICE float acosf(float x) { return (float)acos((double)x); }
TL_DEVICE double ldexp(double x, int n) { return __builtin_ldexp(x, n); }
TL_DEVICE float ldexpf(float x, int n) { return __builtin_ldexpf(x, n); }
