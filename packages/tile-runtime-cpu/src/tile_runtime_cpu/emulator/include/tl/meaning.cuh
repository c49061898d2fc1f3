// Instructions whose meaning the user gave in Python: operands and results as 64-bit words.
#pragma once

namespace tl {
namespace detail {

template <class T>
inline uint64_t to_word(T value) {
  static_assert(sizeof(T) <= 8, "an operand has up to 8 bytes");
  uint64_t word = 0;
  __builtin_memcpy(&word, &value, sizeof(T));
  return word;
}

template <class T>
inline T from_word(uint64_t word) {
  T value;
  __builtin_memcpy(&value, &word, sizeof(T));
  return value;
}

}  // namespace detail
}  // namespace tl
