// Functions of a double by reduction and series, for functions.h. Series are Taylor's, long enough for 53 bits in the
// reduced range; numbers that need more are sums of two doubles. The errors stand in functions.h.
#pragma once

namespace tl {
namespace detail {

// An unevaluated sum; `low` is at most half a unit in the last place of `high`.
struct sum {
  double high, low;
};

TL_DEVICE sum exact_sum(double a, double b) {
  double s = a + b, t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}
TL_DEVICE sum exact_product(double a, double b) {
  double p = a * b;
  return {p, __builtin_fma(a, b, -p)};
}
TL_DEVICE sum times(sum a, double b) {
  sum p = exact_product(a.high, b);
  return exact_sum(p.high, __builtin_fma(a.low, b, p.low));
}
TL_DEVICE sum times(sum a, sum b) {
  sum p = exact_product(a.high, b.high);
  return exact_sum(p.high, p.low + (a.high * b.low + a.low * b.high));
}
TL_DEVICE sum plus(sum a, sum b) {
  sum s = exact_sum(a.high, b.high);
  return exact_sum(s.high, s.low + (a.low + b.low));
}

TL_DEVICE double clamp(double x, double bound) { return x < -bound ? -bound : x > bound ? bound : x; }

// c[0] + c[1] x + ... + c[n - 1] x^(n - 1)
template <int n>
TL_DEVICE double polynomial(double x, const double (&c)[n]) {
  double total = c[n - 1];
#pragma unroll
  for (int i = n - 2; i >= 0; --i) total = __builtin_fma(total, x, c[i]);
  return total;
}

// -- exponentials --------------------------------------------------------------------------------------------------

// (e^(r + low) - 1 - r) for |r| < 0.35
TL_DEVICE double exp_rest(double r, double low) {
  const double c[] = {1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880,
                      1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  return __builtin_fma(r * r, polynomial(r, c), low + low * r);
}

// x = n ln 2 + r: 2^n and e^r - 1
struct power {
  int n;
  double rest;
};

TL_DEVICE power exp_parts(double high, double low) {
  double n = __builtin_rint(high * 0x1.71547652b82fep+0);
  double r = __builtin_fma(-n, 0x1.62e42fee00000p-1, high);  // exact: the first part of ln 2 has 32 bits
  sum near = exact_sum(r, __builtin_fma(-n, 0x1.a39ef35793c76p-33, low));
  return {n == n ? (int)n : 0, near.high + exp_rest(near.high, near.low)};
}

// 2^shift e^(high + low), |high| < 1e4, `low` far smaller
TL_DEVICE double exp_of(double high, double low, int shift = 0) {
  power p = exp_parts(high, low);
  return __builtin_ldexp(1.0 + p.rest, p.n + shift);
}

TL_DEVICE double exp_of(double x) { return exp_of(clamp(x, 2000.0), 0.0); }

TL_DEVICE double exp2_of(double x) {
  x = clamp(x, 3000.0);
  double n = __builtin_rint(x);
  sum r = times({0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56}, x - n);
  return __builtin_ldexp(1.0 + (r.high + exp_rest(r.high, r.low)), n == n ? (int)n : 0);
}

TL_DEVICE double exp10_of(double x) {
  sum r = times({0x1.26bb1bbb55516p+1, -0x1.f48ad494ea3e9p-53}, clamp(x, 800.0));
  return exp_of(r.high, r.low);
}

// e^x - 1
TL_DEVICE double expm1_of(double x) {
  power p = exp_parts(clamp(x, 2000.0), 0.0);
  if (p.n == 0) return x + exp_rest(x, 0.0);
  if (p.n > 60) return __builtin_ldexp(1.0 + p.rest, p.n);
  double scale = __builtin_ldexp(1.0, p.n);
  return (scale - 1.0) + scale * p.rest;
}

// -- logarithms ----------------------------------------------------------------------------------------------------

// log x for finite x > 0: x = 2^e m, sqrt(1/2) <= m < sqrt(2), log m = 2 (s + s^3/3 + s^5/5 + ...), s = (m - 1)/(m + 1)
TL_DEVICE sum log_of_positive(double x) {
  bool tiny = x < 0x1p-1022;
  uint64_t u = double_bits(tiny ? x * 0x1p54 : x) - 0x3fe6a09e667f3bcdull;
  double e = (double)((int64_t)u >> 52) - (tiny ? 54.0 : 0.0);
  double m = bits_double((u & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull);
  double f = m - 1.0;
  sum below = exact_sum(m, 1.0);
  double high = f / below.high;
  double low = (__builtin_fma(-high, below.high, f) - high * below.low) / below.high;
  sum s = {high, low}, square = times(s, s), cube = times(s, square);
  const double c[] = {1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23};
  double rest = cube.high * square.high * polynomial(square.high, c);
  sum third = times(cube, {0x1.5555555555555p-2, 0x1.5555555555555p-56});
  sum half = plus(s, {third.high, third.low + rest});
  return plus(times({0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56}, e), {2 * half.high, 2 * half.low});
}

// Where a logarithm is no finite number.
TL_DEVICE bool is_ordinary(double x) { return x > 0 && x < __builtin_inf(); }
TL_DEVICE double log_at_the_edge(double x) {
  return x == 0 ? -__builtin_inf() : x > 0 ? x : x != x ? x : __builtin_nan("");
}

TL_DEVICE double log_of(double x) {
  if (!is_ordinary(x)) return log_at_the_edge(x);
  sum r = log_of_positive(x);
  return r.high + r.low;
}
TL_DEVICE double log_of(double x, sum factor) {
  if (!is_ordinary(x)) return log_at_the_edge(x);
  sum r = times(log_of_positive(x), factor);
  return r.high + r.low;
}
TL_DEVICE double log2_of(double x) { return log_of(x, {0x1.71547652b82fep+0, 0x1.777d0ffda0d24p-56}); }
TL_DEVICE double log10_of(double x) { return log_of(x, {0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57}); }

// log(1 + x)
TL_DEVICE double log1p_of(double x) {
  if (__builtin_fabs(x) < 0x1p-54 || x == __builtin_inf()) return x;
  sum u = exact_sum(1.0, x);
  if (!is_ordinary(u.high)) return log_at_the_edge(u.high);
  sum r = log_of_positive(u.high);
  return r.high + (r.low + u.low / u.high);
}

// C's rules for what is no positive number: a negative x takes whole y only, and odd y keep its sign.
TL_DEVICE double pow_of(double x, double y) {
  if (y == 0 || x == 1) return 1.0;
  if (x != x || y != y) return x + y;
  const double size = __builtin_fabs(x), infinity = __builtin_inf();
  const bool whole = __builtin_trunc(y) == y, odd = whole && __builtin_trunc(y * 0.5) != y * 0.5;
  double r;
  if (__builtin_fabs(y) == infinity) {
    r = size == 1 ? 1.0 : (size > 1) == (y > 0) ? infinity : 0.0;
  } else if (size == 0 || size == infinity) {
    r = (size == 0) == (y < 0) ? infinity : 0.0;
  } else if (x < 0 && !whole) {
    r = __builtin_nan("");
  } else {
    sum log = log_of_positive(size), p = times(log, y);
    bool inside = __builtin_fabs(log.high * y) < 2000.0;  // else 0 or infinity anyway
    r = inside ? exp_of(p.high, p.low) : (log.high > 0) == (y > 0) ? infinity : 0.0;
  }
  return odd ? __builtin_copysign(r, x) : r;
}

// -- trigonometry --------------------------------------------------------------------------------------------------

// x = (quarter + 4 i) pi/2 + r, |r| <= pi/4
struct angle {
  sum r;
  int quarter;
};

TL_DEVICE angle reduced(double x) {
  const double size = __builtin_fabs(x);
  if (size < 0x1p19) {
    double n = __builtin_rint(x * 0x1.45f306dc9c883p-1);
    double first = __builtin_fma(-n, 0x1.921fb54442d18p+0, x);  // exact: a multiple of 2^-52 below 1
    sum second = exact_product(-n, 0x1.1a62633145c07p-54);
    sum r = exact_sum(first, second.high);
    r = exact_sum(r.high, r.low + __builtin_fma(n, 0x1.f1976b7ed8fbcp-110, second.low));
    return {r, (int)(int64_t)n & 3};
  }
  if (!(size < __builtin_inf())) return {{__builtin_nan(""), 0.0}, 0};
  // x = m 2^e with a whole m. Of the bits of 2/pi those above 2^(1 - e) give multiples of 4; the next 192 are kept, and
  // m times them is (x 2/pi mod 4) 2^190 (Payne and Hanek's reduction).
  static constexpr uint64_t two_over_pi[] = {
      0,                     0xa2f9836e4e441529ull, 0xfc2757d1f534ddc0ull, 0xdb6295993c439041ull, 0xfe5163abdebbc561ull,
      0xb7246e3a424dd2e0ull, 0x06492eea09d1921cull, 0xfe1deb1cb129a73eull, 0xe88235f52ebb4484ull, 0xe99c7026b45f7e41ull,
      0x3991d639835339f4ull, 0x9c845f8bbdf9283bull, 0x1ff897ffde05980full, 0xef2f118b5a0a6d1full, 0x6d367ecf27cb09b7ull,
      0x4f463f669e5fea2dull, 0x7527bac7ebe5f17bull, 0x3d0739f78a5292eaull, 0x6bfb5fb11f8d5d08ull, 0x56033046fc7b6babull};
  const uint64_t bits = double_bits(size);
  const int first = (int)(bits >> 52) - 1075 - 2 + 64;  // of the 192, counted from the table's start
  const uint64_t m = (bits & 0xfffffffffffffull) | 0x10000000000000ull;
  const int word = first >> 6, shift = first & 63;
  uint64_t window[3];
  for (int i = 0; i < 3; ++i) {
    window[i] = two_over_pi[word + i] << shift;
    if (shift) window[i] |= two_over_pi[word + i + 1] >> (64 - shift);
  }
  typedef unsigned __int128 wide;
  wide low = (wide)m * window[2], middle = (wide)m * window[1] + (uint64_t)(low >> 64);
  uint64_t top = m * window[0] + (uint64_t)(middle >> 64), next = (uint64_t)middle;
  int quarter = (int)(top >> 62) + (int)(top >> 61 & 1);  // to the nearest
  top <<= 2, top |= next >> 62, next <<= 2, next |= (uint64_t)low >> 62;
  const bool negative = top >> 63;
  if (negative) top = ~top, next = ~next;  // -x - 2^-128
  double high = (double)(top & ~0x7ffull) * 0x1p-64;
  double rest = (double)(top & 0x7ffull) * 0x1p-64 + (double)next * 0x1p-128;
  sum r = times(exact_sum(high, rest), {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54});
  if (negative != (x < 0)) r = {-r.high, -r.low};
  return {r, (x < 0 ? -quarter : quarter) & 3};
}

TL_DEVICE double sine(sum r) {
  const double c[] = {-1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800,
                      -1.0 / 1307674368000, 1.0 / 355687428096000};
  double square = r.high * r.high;
  return r.high + __builtin_fma(r.high * square, polynomial(square, c), r.low * (1.0 - 0.5 * square));
}

TL_DEVICE double cosine(sum r) {
  const double c[] = {1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200,
                      1.0 / 20922789888000, -1.0 / 6402373705728000};
  double square = r.high * r.high, half = 0.5 * square, whole = 1.0 - half;
  return whole + ((1.0 - whole - half) + __builtin_fma(square * square, polynomial(square, c), -r.high * r.low));
}

TL_DEVICE double sin_of(double x) {
  angle a = reduced(x);
  double r = a.quarter & 1 ? cosine(a.r) : sine(a.r);
  return x == 0 ? x : a.quarter & 2 ? -r : r;
}
TL_DEVICE double cos_of(double x) {
  angle a = reduced(x);
  double r = a.quarter & 1 ? sine(a.r) : cosine(a.r);
  return (a.quarter + 1) & 2 ? -r : r;
}
TL_DEVICE double tan_of(double x) {
  angle a = reduced(x);
  double s = sine(a.r), c = cosine(a.r);
  return x == 0 ? x : a.quarter & 1 ? -c / s : s / c;
}

// atan(y/x) for 0 <= y <= x: below tan(pi/12) a series, above it pi/6 more than a smaller angle.
TL_DEVICE double atan_of_ratio(double y, double x) {
  const bool far = y > 0x1.126145e9ecd56p-2 * x;
  const double root = 0x1.bb67ae8584caap+0;  // of 3
  double t = far ? (y * root - x) / __builtin_fma(x, root, y) : y / x;
  double square = t * t;
  const double c[] = {-1.0 / 3, 1.0 / 5, -1.0 / 7, 1.0 / 9, -1.0 / 11, 1.0 / 13, -1.0 / 15,
                      1.0 / 17, -1.0 / 19, 1.0 / 21, -1.0 / 23, 1.0 / 25, -1.0 / 27};
  double r = __builtin_fma(t * square, polynomial(square, c), t);
  return far ? 0x1.0c152382d7366p-1 + (r - 0x1.ee6913347c2a6p-55) : r;
}

TL_DEVICE double atan2_of(double y, double x) {
  if (x != x || y != y) return x + y;
  double a = __builtin_fabs(y), b = __builtin_fabs(x);
  if (a == b) a = b = 1.0, a = y == 0 ? 0.0 : 1.0;  // both zero or both infinite
  const bool steep = a > b;
  double small = steep ? b : a, large = steep ? a : b;
  if (large == __builtin_inf()) small = 0.0, large = 1.0;
  else if (large > 0x1p1000) small *= 0x1p-30, large *= 0x1p-30;  // x * sqrt(3) stays finite
  double r = atan_of_ratio(small, large);
  if (steep) r = 0x1.921fb54442d18p+0 - (r - 0x1.1a62633145c07p-54);
  if (__builtin_signbit(x)) r = 0x1.921fb54442d18p+1 - (r - 0x1.1a62633145c07p-53);
  return __builtin_copysign(r, y);
}

// -- hyperbolic functions ------------------------------------------------------------------------------------------

TL_DEVICE double sinh_of(double x) {
  double size = __builtin_fabs(x), r;
  if (size < 22.0) {
    double t = expm1_of(size);
    r = 0.5 * (t + t / (t + 1.0));
  } else {
    r = exp_of(clamp(size, 2000.0), 0.0, -1);
  }
  return __builtin_copysign(r, x);
}
TL_DEVICE double cosh_of(double x) {
  double size = __builtin_fabs(x);
  if (size >= 22.0) return exp_of(clamp(size, 2000.0), 0.0, -1);
  double e = exp_of(size);
  return 0.5 * (e + 1.0 / e);
}
TL_DEVICE double tanh_of(double x) {
  double size = __builtin_fabs(x), t = expm1_of(2.0 * (size < 22.0 ? size : 22.0));
  return x != x ? x : __builtin_copysign(t / (t + 2.0), x);
}
TL_DEVICE double asinh_of(double x) {
  double t = __builtin_fabs(x), square = t * t;
  double r = t > 0x1p28 ? log_of(t) + 0x1.62e42fefa39efp-1 : log1p_of(t + square / (1.0 + __builtin_sqrt(square + 1.0)));
  return __builtin_copysign(r, x);
}
TL_DEVICE double acosh_of(double x) {
  if (x > 0x1p28) return log_of(x) + 0x1.62e42fefa39efp-1;
  if (x < 1.0) return __builtin_nan("");
  double t = x - 1.0;
  return log1p_of(t + __builtin_sqrt(t * (t + 2.0)));
}
TL_DEVICE double atanh_of(double x) {
  double t = __builtin_fabs(x);
  return __builtin_copysign(0.5 * log1p_of(2.0 * t / (1.0 - t)), x);
}

// -- the rest ------------------------------------------------------------------------------------------------------

// 2/sqrt(pi) e^(-x^2) (x + 2 x^3/3 + 4 x^5/15 + ...), all of one sign; beyond 2 the continued fraction of 1 - erf x.
TL_DEVICE double erf_of(double x) {
  double size = __builtin_fabs(x);
  if (size != size) return x;
  if (size >= 6.0) return __builtin_copysign(1.0, x);
  sum square = exact_product(size, size);
  double e = exp_of(-square.high, -square.low), r;
  if (size < 2.0) {
    double total = 1.0;
    for (int n = 48; n > 0; --n) total = __builtin_fma(total, 2.0 * square.high / (2 * n + 1), 1.0);
    r = 0x1.20dd750429b6dp+0 * e * size * total;
  } else {
    double below = size;
    for (int n = 100; n > 0; --n) below = size + 0.5 * n / below;
    r = 1.0 - e * 0x1.20dd750429b6dp-1 / below;
  }
  return __builtin_copysign(r, x);
}

// The exponent of the leading bit, up to a constant.
TL_DEVICE int exponent(double x) {
  return x < 0x1p-1022 ? (int)(double_bits(x * 0x1p54) >> 52) - 54 : (int)(double_bits(x) >> 52);
}

// The remainder of x/y with the sign of x, exact: multiples of y are taken off while the ratio is large.
TL_DEVICE double fmod_of(double x, double y) {
  double rest = __builtin_fabs(x), size = __builtin_fabs(y);
  if (!(rest < __builtin_inf()) || size == 0 || size != size) return __builtin_nan("");
  while (rest >= size) {
    double part = size;
    int apart = exponent(rest) - exponent(part);
    if (apart > 50) part = __builtin_ldexp(part, apart - 50);
    double n = __builtin_trunc(rest / part);
    double left = __builtin_fma(-n, part, rest);
    rest = left < 0 ? left + part : left;
  }
  return __builtin_copysign(rest, x);
}

TL_DEVICE double hypot_of(double x, double y) {
  double a = __builtin_fabs(x), b = __builtin_fabs(y);
  if (a == __builtin_inf() || b == __builtin_inf()) return __builtin_inf();
  double large = a > b ? a : b, scale = large > 0x1p500 ? 0x1p-600 : large < 0x1p-500 ? 0x1p600 : 1.0;
  a *= scale, b *= scale;
  sum total = plus(exact_product(a, a), exact_product(b, b));
  return __builtin_sqrt(total.high + total.low) / scale;
}

}  // namespace detail
}  // namespace tl
