// tl::vec of HIP: as types.h describes it, copied as one register of its width. Clang copies a struct as bytes, and memory
// that is only ever copied so stays in scratch.
#pragma once

#define TL_OWN_VEC 1

namespace tl {
namespace detail {

template <int bytes>
struct whole {
  typedef uint32_t type __attribute__((ext_vector_type(bytes / 4), may_alias));
};
template <>
struct whole<1> {
  typedef uint8_t type __attribute__((may_alias));
};
template <>
struct whole<2> {
  typedef uint16_t type __attribute__((may_alias));
};
template <>
struct whole<4> {
  typedef uint32_t type __attribute__((may_alias));
};

}  // namespace detail

template <class T, int n>
struct alignas(sizeof(T) * n) vec {
  typedef typename detail::whole<sizeof(T) * n>::type whole;
  T value[n];
  vec() = default;
  TL_DEVICE vec(const vec& other) { *(whole*)this = *(const whole*)&other; }
  TL_DEVICE vec& operator=(const vec& other) {
    *(whole*)this = *(const whole*)&other;
    return *this;
  }
  TL_DEVICE T& operator[](int i) { return value[i]; }
  TL_DEVICE const T& operator[](int i) const { return value[i]; }
};

}  // namespace tl
