// Narrow floating types: half_t, bfloat16_t, fp8_e4m3_t, fp8_e5m2_t, fp8_e8m0_t.
//
// Each is its bits. Construction from a number is explicit and rounds once, conversion to float is implicit and exact,
// every arithmetic operator rounds to the type. The text is shared: the CUDA header and the emulator's hold the same
// file (a test compares them), each with its own convert.cuh.
#pragma once

namespace tl {
namespace detail {

// A double as a float rounded to odd: a second rounding, to a narrower type, then equals rounding once.
TL_DEVICE float round_to_odd(double x) {
  float f = (float)x;
  if ((double)f == x || x != x) return f;
  uint32_t u = float_bits(f);
  bool away = (x < 0 ? -(double)f : (double)f) > (x < 0 ? -x : x);
  if (away) u -= 1;
  return bits_float(u | 1u);
}

// A float as 1 + exponent + mantissa bits, to nearest even, saturating at `largest`.
template <int mantissa, int bias, uint32_t largest, uint32_t nan>
TL_DEVICE uint8_t float8_from_float(float x) {
  uint32_t u = float_bits(x), sign = (u >> 24) & 0x80u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (uint8_t)nan;
  int exponent = (int)(magnitude >> 23) - 127 + bias;
  uint32_t r;
  if (exponent >= 1) {  // normal: drop mantissa bits; a carry moves into the exponent as it should
    uint32_t drop = 23 - mantissa, rebased = magnitude - ((uint32_t)(127 - bias) << 23);
    r = (rebased + (1u << (drop - 1)) - 1u + ((rebased >> drop) & 1u)) >> drop;
  } else {  // subnormal: a multiple of the smallest step; adding 2^23 of its steps leaves the rounded count
    float steps = bits_float(magnitude) * bits_float((uint32_t)(127 + bias - 1 + mantissa) << 23);
    r = float_bits(steps + 8388608.0f) - 0x4b000000u;
  }
  return (uint8_t)(sign | (r > largest ? largest : r));
}

template <int mantissa, int bias>
TL_DEVICE float float8_to_float(uint8_t x) {
  uint32_t sign = (uint32_t)(x & 0x80u) << 24, magnitude = x & 0x7fu;
  uint32_t exponent = magnitude >> mantissa, fraction = magnitude & ((1u << mantissa) - 1u);
  if (exponent == 0) {
    float step = bits_float((uint32_t)(127 - bias + 1 - mantissa) << 23);
    float value = (float)fraction * step;
    return sign ? -value : value;
  }
  return bits_float(sign | ((exponent + 127 - bias) << 23) | (fraction << (23 - mantissa)));
}

#if !defined(TL_NATIVE_FP8)
TL_DEVICE uint8_t e4m3_from_float(float x) { return float8_from_float<3, 7, 0x7e, 0x7f>(x); }
TL_DEVICE uint8_t e5m2_from_float(float x) { return float8_from_float<2, 15, 0x7b, 0x7f>(x); }
#endif

struct f16_format {
  typedef uint16_t storage;
  static TL_DEVICE uint16_t encode(float x) { return f16_from_float(x); }
  static TL_DEVICE float decode(uint16_t x) { return f16_to_float(x); }
  static TL_DEVICE uint16_t add(uint16_t a, uint16_t b) { return f16_add(a, b); }
  static TL_DEVICE uint16_t subtract(uint16_t a, uint16_t b) { return f16_subtract(a, b); }
  static TL_DEVICE uint16_t multiply(uint16_t a, uint16_t b) { return f16_multiply(a, b); }
};

// Arithmetic through float: float holds more than twice the bits, so the second rounding changes nothing.
template <class Format, class Storage>
struct through_float {
  typedef Storage storage;
  static TL_DEVICE Storage add(Storage a, Storage b) { return Format::encode(Format::decode(a) + Format::decode(b)); }
  static TL_DEVICE Storage subtract(Storage a, Storage b) { return Format::encode(Format::decode(a) - Format::decode(b)); }
  static TL_DEVICE Storage multiply(Storage a, Storage b) { return Format::encode(Format::decode(a) * Format::decode(b)); }
};

struct bf16_format : through_float<bf16_format, uint16_t> {
  static TL_DEVICE uint16_t encode(float x) { return bf16_from_float(x); }
  static TL_DEVICE float decode(uint16_t x) { return bits_float((uint32_t)x << 16); }
#if defined(TL_NATIVE_BF16)
  static TL_DEVICE uint16_t add(uint16_t a, uint16_t b) { return bf16_add(a, b); }
  static TL_DEVICE uint16_t subtract(uint16_t a, uint16_t b) { return bf16_subtract(a, b); }
  static TL_DEVICE uint16_t multiply(uint16_t a, uint16_t b) { return bf16_multiply(a, b); }
#endif
};

struct e4m3_format : through_float<e4m3_format, uint8_t> {
  static TL_DEVICE uint8_t encode(float x) { return e4m3_from_float(x); }
  static TL_DEVICE float decode(uint8_t x) {
    return (x & 0x7fu) == 0x7fu ? bits_float(0x7fffffffu) : float8_to_float<3, 7>(x);
  }
};

struct e5m2_format : through_float<e5m2_format, uint8_t> {
  static TL_DEVICE uint8_t encode(float x) { return e5m2_from_float(x); }
  static TL_DEVICE float decode(uint8_t x) {  // the upper byte of an f16
    uint32_t magnitude = x & 0x7fu;
    if (magnitude >= 0x7cu) return bits_float(((uint32_t)(x & 0x80u) << 24) | (magnitude == 0x7cu ? 0x7f800000u : 0x7fffffffu));
    return float8_to_float<2, 15>(x);
  }
};

// Powers of two, 2^(x - 127); 255 is NaN. Conversion rounds the exponent up; what has no logarithm becomes NaN.
struct e8m0_format : through_float<e8m0_format, uint8_t> {
  static TL_DEVICE uint8_t encode(float x) {
    uint32_t u = float_bits(x);
    if (u > 0x7f800000u) return 255;      // negative or NaN
    if (u == 0x7f800000u) return 254;     // saturates
    if (u < 0x00400000u) return 0;        // below 2^-127: the smallest
    if (u < 0x00800000u) return u > 0x00400000u ? 1 : 0;
    uint32_t up = (u >> 23) + ((u & 0x7fffffu) ? 1u : 0u);
    return (uint8_t)(up > 254u ? 254u : up);
  }
  static TL_DEVICE float decode(uint8_t x) {
    if (x == 255) return bits_float(0x7fffffffu);
    return bits_float(x == 0 ? 0x00400000u : (uint32_t)x << 23);
  }
};

template <class Format>
struct narrow_float {
  typedef typename Format::storage storage;
  storage bits;

  narrow_float() = default;
  explicit TL_DEVICE narrow_float(float x) : bits(Format::encode(x)) {}
  explicit TL_DEVICE narrow_float(double x) : bits(Format::encode(round_to_odd(x))) {}
  explicit TL_DEVICE narrow_float(int x) : bits(Format::encode(round_to_odd((double)x))) {}
  explicit TL_DEVICE narrow_float(unsigned x) : bits(Format::encode(round_to_odd((double)x))) {}
  explicit TL_DEVICE narrow_float(long x) : bits(Format::encode(round_to_odd((double)x))) {}
  explicit TL_DEVICE narrow_float(unsigned long x) : bits(Format::encode(round_to_odd((double)x))) {}
  explicit TL_DEVICE narrow_float(long long x) : bits(Format::encode(round_to_odd((double)x))) {}
  explicit TL_DEVICE narrow_float(unsigned long long x) : bits(Format::encode(round_to_odd((double)x))) {}
  explicit TL_DEVICE narrow_float(bool x) : bits(Format::encode(x ? 1.0f : 0.0f)) {}
  template <class Other>
  explicit TL_DEVICE narrow_float(narrow_float<Other> x) : bits(Format::encode((float)x)) {}
  static TL_DEVICE narrow_float from_bits(storage b) {
    narrow_float r;
    r.bits = b;
    return r;
  }
  TL_DEVICE operator float() const { return Format::decode(bits); }

  friend TL_DEVICE narrow_float operator+(narrow_float a, narrow_float b) { return from_bits(Format::add(a.bits, b.bits)); }
  friend TL_DEVICE narrow_float operator-(narrow_float a, narrow_float b) { return from_bits(Format::subtract(a.bits, b.bits)); }
  friend TL_DEVICE narrow_float operator*(narrow_float a, narrow_float b) { return from_bits(Format::multiply(a.bits, b.bits)); }
  friend TL_DEVICE narrow_float operator/(narrow_float a, narrow_float b) { return narrow_float((float)a / (float)b); }
  friend TL_DEVICE narrow_float operator-(narrow_float a) { return narrow_float(-(float)a); }
  TL_DEVICE narrow_float& operator+=(narrow_float b) { return *this = *this + b; }
  TL_DEVICE narrow_float& operator-=(narrow_float b) { return *this = *this - b; }
  TL_DEVICE narrow_float& operator*=(narrow_float b) { return *this = *this * b; }
  TL_DEVICE narrow_float& operator/=(narrow_float b) { return *this = *this / b; }
  friend TL_DEVICE bool operator==(narrow_float a, narrow_float b) { return (float)a == (float)b; }
  friend TL_DEVICE bool operator!=(narrow_float a, narrow_float b) { return (float)a != (float)b; }
  friend TL_DEVICE bool operator<(narrow_float a, narrow_float b) { return (float)a < (float)b; }
  friend TL_DEVICE bool operator<=(narrow_float a, narrow_float b) { return (float)a <= (float)b; }
  friend TL_DEVICE bool operator>(narrow_float a, narrow_float b) { return (float)a > (float)b; }
  friend TL_DEVICE bool operator>=(narrow_float a, narrow_float b) { return (float)a >= (float)b; }
};

}  // namespace detail

typedef detail::narrow_float<detail::f16_format> half_t;
typedef detail::narrow_float<detail::bf16_format> bfloat16_t;
typedef detail::narrow_float<detail::e4m3_format> fp8_e4m3_t;
typedef detail::narrow_float<detail::e5m2_format> fp8_e5m2_t;
typedef detail::narrow_float<detail::e8m0_format> fp8_e8m0_t;

// The halves of a word that holds two floats of 16 bits.
template <class T>
TL_DEVICE T low_half(uint32_t word) {
  return T::from_bits(detail::low_16(word));
}
template <class T>
TL_DEVICE T high_half(uint32_t word) {
  return T::from_bits(detail::high_16(word));
}

#if !defined(TL_OWN_VEC)
// n neighbours that one instruction moves. `*(vec<T, n>*)p = v` needs p aligned to the whole vector.
template <class T, int n>
struct alignas(sizeof(T) * n) vec {
  T value[n];
  TL_DEVICE T& operator[](int i) { return value[i]; }
  TL_DEVICE const T& operator[](int i) const { return value[i]; }
};
#endif

}  // namespace tl
