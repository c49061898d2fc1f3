// Atomics: threads are run one at a time, so plain operations are atomic once the runtime has checked the address.
#pragma once

namespace tl {
namespace detail {

// The operation itself must not look like a plain access to the checker.
template <class T, class Operation>
__attribute__((noinline, no_sanitize("thread"))) T unchecked_update(T* p, Operation operation) {
  T old = *p;
  *p = operation(old);
  return old;
}

// The device has atomics on words of 4 and 8 bytes, f16 and bf16; what it lacks must not compile here either.
template <class T>
struct has_atomics {
  static constexpr bool value = sizeof(T) == 4 || sizeof(T) == 8;
};
template <>
struct has_atomics<half_t> {
  static constexpr bool value = true;
};
template <>
struct has_atomics<bfloat16_t> {
  static constexpr bool value = true;
};

template <class T, class Operation>
TL_DEVICE T atomic_update(T* p, Operation operation) {
  static_assert(has_atomics<T>::value, "no atomics on this type");
  tl_emu_atomic(p, sizeof(T));
  return unchecked_update(p, operation);
}

}  // namespace detail

#define TL_ATOMIC(name, expression)                                                       \
  template <class T>                                                                      \
  TL_DEVICE T name(T* p, T v) {                                                           \
    return detail::atomic_update(p, [v](T x) __attribute__((no_sanitize("thread"))) -> T { return expression; }); \
  }
TL_ATOMIC(atomic_add, x + v)
TL_ATOMIC(atomic_min, (x <= v || v != v) ? x : v)
TL_ATOMIC(atomic_max, (x >= v || v != v) ? x : v)
TL_ATOMIC(atomic_and, x & v)
TL_ATOMIC(atomic_or, x | v)
TL_ATOMIC(atomic_xor, x ^ v)
TL_ATOMIC(atomic_exchange, v)
#undef TL_ATOMIC

template <class T>
TL_DEVICE T atomic_load(const T* p) {
  return detail::atomic_update((T*)p, [](T x) __attribute__((no_sanitize("thread"))) -> T { return x; });
}

template <class T>
TL_DEVICE void atomic_add_x2(T* p, vec<T, 2> v) {
  tl_emu_atomic(p, 2 * sizeof(T));  // aligned to both
  for (int i = 0; i < 2; ++i) atomic_add(p + i, v[i]);
}
template <class T>
TL_DEVICE void atomic_add_x4(T* p, vec<T, 4> v) {
  tl_emu_atomic(p, 4 * sizeof(T));
  for (int i = 0; i < 4; ++i) atomic_add(p + i, v[i]);
}
template <class T>
TL_DEVICE void atomic_add_x2(T* p, const T* v) {
  tl_emu_atomic(p, 2 * sizeof(T));
  for (int i = 0; i < 2; ++i) atomic_add(p + i, v[i]);
}
template <class T>
TL_DEVICE void atomic_add_x4(T* p, const T* v) {
  tl_emu_atomic(p, 4 * sizeof(T));
  for (int i = 0; i < 4; ++i) atomic_add(p + i, v[i]);
}

}  // namespace tl
