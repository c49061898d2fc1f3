// Elements of less than a byte: int4_t, uint4_t, int2_t, uint2_t, int1_t, uint1_t, fp4_e2m1_t.
//
// A value in a register takes a byte. In global and shared memory element i of a row lies in byte i / per, low bits
// first, where per = 8 / width; rows begin at bytes. The text is shared with the emulator's header, like types.cuh.
#pragma once

namespace tl {

// An integer modulo 2^width_; C++ computes with it as with int.
template <int width_, bool is_signed>
struct narrow_int {
  static constexpr int width = width_;
  uint8_t code;  // the low bits; the others are 0

  narrow_int() = default;
  template <class Number>
  explicit TL_DEVICE narrow_int(Number x) : code((uint8_t)((int)x & ((1 << width) - 1))) {}
  static TL_DEVICE narrow_int from_code(unsigned c) { return narrow_int((int)c); }
  TL_DEVICE operator int() const {
    return is_signed ? (int)((unsigned)code << (32 - width)) >> (32 - width) : (int)code;
  }
  TL_DEVICE narrow_int& operator+=(int x) { return *this = narrow_int((int)*this + x); }
  TL_DEVICE narrow_int& operator-=(int x) { return *this = narrow_int((int)*this - x); }
  TL_DEVICE narrow_int& operator*=(int x) { return *this = narrow_int((int)*this * x); }
};

typedef narrow_int<1, true> int1_t;
typedef narrow_int<1, false> uint1_t;
typedef narrow_int<2, true> int2_t;
typedef narrow_int<2, false> uint2_t;
typedef narrow_int<4, true> int4_t;
typedef narrow_int<4, false> uint4_t;

namespace detail {

// 1 sign, 2 exponent, 1 mantissa bit (OCP Microscaling Formats 1.0, 5.3.3): no infinity, no NaN; what is too large, and
// NaN, become 6.
struct e2m1_format : through_float<e2m1_format, uint8_t> {
  static TL_DEVICE uint8_t encode(float x) {
    if (x != x) return 7;
    float size = x < 0 ? -x : x;
    // halfway points between neighbours 0 0.5 1 1.5 2 3 4 6; a tie goes to the even code
    uint8_t c = (uint8_t)((size > 0.25f) + (size >= 0.75f) + (size > 1.25f) + (size >= 1.75f) + (size > 2.5f) +
                          (size >= 3.5f) + (size > 5.0f));
    return (uint8_t)(c | (float_bits(x) >> 31 << 3));
  }
  static TL_DEVICE float decode(uint8_t x) {
    uint32_t magnitude = x & 7u, sign = (uint32_t)(x & 8u) << 28;
    float value = magnitude < 2u ? 0.5f * (float)magnitude : bits_float((magnitude << 22) + 0x3f000000u);
    return bits_float(float_bits(value) | sign);
  }
};

template <class To>
struct integer_limits;
template <int width, bool is_signed>
struct integer_limits<narrow_int<width, is_signed>> {
  static TL_DEVICE int least() { return is_signed ? -(1 << (width - 1)) : 0; }
  static TL_DEVICE int greatest() { return (1 << (width - is_signed)) - 1; }
};

template <class T>
struct coded {  // how a value of T becomes its code
  static constexpr int width = T::width;
  static TL_DEVICE unsigned code(T x) { return x.code; }
  static TL_DEVICE T value(unsigned c) { return T::from_code(c); }
};
template <>
struct coded<narrow_float<e2m1_format>> {
  static constexpr int width = 4;
  static TL_DEVICE unsigned code(narrow_float<e2m1_format> x) { return x.bits & 15u; }
  static TL_DEVICE narrow_float<e2m1_format> value(unsigned c) {
    return narrow_float<e2m1_format>::from_bits((uint8_t)(c & 15u));
  }
};

}  // namespace detail

typedef detail::narrow_float<detail::e2m1_format> fp4_e2m1_t;

// Element i of packed memory.
template <class T, class Index>
TL_DEVICE T unpack(const uint8_t* p, Index i) {
  constexpr int width = detail::coded<T>::width, per = 8 / width;
  return detail::coded<T>::value((unsigned)p[i / per] >> (int)(i % per) * width);
}

// Elements i to i + n - 1, which fill n * width / 8 bytes that begin at a multiple of their number.
template <class T, int n, class Index>
TL_DEVICE vec<T, n> unpack(const uint8_t* p, Index i) {
  constexpr int width = detail::coded<T>::width, per = 8 / width;
  const vec<uint8_t, n / per> bytes = *(const vec<uint8_t, n / per>*)(p + i / per);
  vec<T, n> values;
#pragma unroll
  for (int e = 0; e < n; ++e) values[e] = detail::coded<T>::value((unsigned)bytes[e / per] >> e % per * width);
  return values;
}

template <class T, int n, class Index>
TL_DEVICE void pack(uint8_t* p, Index i, vec<T, n> values) {
  constexpr int width = detail::coded<T>::width, per = 8 / width;
  vec<uint8_t, n / per> bytes;
#pragma unroll
  for (int b = 0; b < n / per; ++b) {
    unsigned byte = 0;
#pragma unroll
    for (int e = 0; e < per; ++e) byte |= detail::coded<T>::code(values[b * per + e]) << e * width;
    bytes[b] = (uint8_t)byte;
  }
  *(vec<uint8_t, n / per>*)(p + i / per) = bytes;
}

// One element; the others of its byte are read and written back, so that no other thread may store to them meanwhile.
template <class T, class Index>
TL_DEVICE void pack(uint8_t* p, Index i, T value) {
  constexpr int width = detail::coded<T>::width, per = 8 / width;
  int shift = (int)(i % per) * width;
  unsigned others = p[i / per] & ~(((1u << width) - 1u) << shift);
  p[i / per] = (uint8_t)(others | detail::coded<T>::code(value) << shift);
}

// A register of a matrix instruction: the values x[0], x[1], ... side by side, low bits first.
template <class T>
TL_DEVICE uint32_t packed_word(const T* x) {
  constexpr int width = detail::coded<T>::width;
  uint32_t word = 0;
#pragma unroll
  for (int e = 0; e < 32 / width; ++e) word |= (uint32_t)detail::coded<T>::code(x[e]) << e * width;
  return word;
}

}  // namespace tl
