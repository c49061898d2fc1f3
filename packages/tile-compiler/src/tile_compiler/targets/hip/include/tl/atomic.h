// Atomics on one element, relaxed, of the whole device, on LDS or global memory. All but the x2 and x4 forms return the old
// value (ISA, "Memory Buffer and Global Instructions: atomics", "Data Share Operations"). Where the hardware has no such
// operation, a loop over compare-and-swap does it. The instructions that add floats need memory that only this device
// caches, as hipMalloc and torch give it.
#pragma once

namespace tl {
namespace detail {

template <class Word>
TL_DEVICE bool swapped(Word* p, Word* seen, Word wanted) {
  return __hip_atomic_compare_exchange_strong(p, seen, wanted, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                              __HIP_MEMORY_SCOPE_AGENT);
}

template <int bytes>
struct cas_word {
  typedef uint32_t type;  // elements of 2 bytes: the word they lie in
};
template <>
struct cas_word<8> {
  typedef uint64_t type;
};

// old = *p; *p = operation(old), as one step. Bits are compared, so NaN ends the loop too.
template <class T, class Operation>
TL_DEVICE T atomic_update(T* p, Operation operation) {
  typedef typename cas_word<sizeof(T)>::type word;
  const int within = sizeof(T) < sizeof(word) ? (unsigned long)p & (sizeof(word) - 1) : 0;  // bytes
  const int shift = 8 * within;
  const word mask = (~(word)0 >> (8 * (sizeof(word) - sizeof(T)))) << shift;
  word* at = (word*)((char*)p - within);
  word seen = __hip_atomic_load(at, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  while (true) {
    T old;
    word low = seen >> shift;
    __builtin_memcpy(&old, &low, sizeof(T));
    T made = operation(old);
    word bits = 0;
    __builtin_memcpy(&bits, &made, sizeof(T));
    if (swapped(at, &seen, (seen & ~mask) | (bits << shift & mask))) return old;
  }
}

template <class T>
struct adding {
  T v;
  TL_DEVICE T operator()(T x) const { return x + v; }
};
template <class T>
struct replacing {
  T v;
  TL_DEVICE T operator()(T) const { return v; }
};
template <class T>
struct least {  // a NaN loses, as in fminf
  T v;
  TL_DEVICE T operator()(T x) const { return (x <= v || v != v) ? x : v; }
};
template <class T>
struct greatest {
  T v;
  TL_DEVICE T operator()(T x) const { return (x >= v || v != v) ? x : v; }
};

}  // namespace detail

// Operations of the hardware.
#define TL_ATOMIC(name, builtin, type) \
  TL_DEVICE type name(type* p, type v) { return builtin(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
#define TL_ATOMIC_INTEGERS(name, builtin)       \
  TL_ATOMIC(name, builtin, int)                 \
  TL_ATOMIC(name, builtin, unsigned)            \
  TL_ATOMIC(name, builtin, long)                \
  TL_ATOMIC(name, builtin, unsigned long)       \
  TL_ATOMIC(name, builtin, long long)           \
  TL_ATOMIC(name, builtin, unsigned long long)
TL_ATOMIC_INTEGERS(atomic_add, __hip_atomic_fetch_add)
TL_ATOMIC_INTEGERS(atomic_min, __hip_atomic_fetch_min)
TL_ATOMIC_INTEGERS(atomic_max, __hip_atomic_fetch_max)
TL_ATOMIC_INTEGERS(atomic_and, __hip_atomic_fetch_and)
TL_ATOMIC_INTEGERS(atomic_or, __hip_atomic_fetch_or)
TL_ATOMIC_INTEGERS(atomic_xor, __hip_atomic_fetch_xor)
TL_ATOMIC_INTEGERS(atomic_exchange, __hip_atomic_exchange)
TL_ATOMIC(atomic_add, __hip_atomic_fetch_add, float)
TL_ATOMIC(atomic_add, __hip_atomic_fetch_add, double)
TL_ATOMIC(atomic_exchange, __hip_atomic_exchange, float)
TL_ATOMIC(atomic_exchange, __hip_atomic_exchange, double)
#undef TL_ATOMIC_INTEGERS
#undef TL_ATOMIC

// One element, never torn.
template <class T>
TL_DEVICE T atomic_load(const T* p) {
  union {
    typename detail::cas_word<sizeof(T)>::type bits;
    T value;
  } seen = {__hip_atomic_load((const typename detail::cas_word<sizeof(T)>::type*)p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT)};
  return seen.value;
}

// Operations by compare-and-swap: those of f16 and bf16, minimum and maximum of floats.
#define TL_ATOMIC_UPDATE(name, operation, type) \
  TL_DEVICE type name(type* p, type v) { return detail::atomic_update(p, detail::operation<type>{v}); }
TL_ATOMIC_UPDATE(atomic_add, adding, half_t)
TL_ATOMIC_UPDATE(atomic_add, adding, bfloat16_t)
TL_ATOMIC_UPDATE(atomic_exchange, replacing, half_t)
TL_ATOMIC_UPDATE(atomic_exchange, replacing, bfloat16_t)
#define TL_ATOMIC_EXTREMES(type)             \
  TL_ATOMIC_UPDATE(atomic_min, least, type)  \
  TL_ATOMIC_UPDATE(atomic_max, greatest, type)
TL_ATOMIC_EXTREMES(float)
TL_ATOMIC_EXTREMES(double)
TL_ATOMIC_EXTREMES(half_t)
TL_ATOMIC_EXTREMES(bfloat16_t)
#undef TL_ATOMIC_EXTREMES
#undef TL_ATOMIC_UPDATE

// Several neighbours; each element is atomic by itself. p is aligned to all of them.
template <class T>
TL_DEVICE void atomic_add_x2(T* p, vec<T, 2> v) {
  atomic_add(p, v[0]);
  atomic_add(p + 1, v[1]);
}

// Packed additions: of global memory on both architectures for f16, on gfx942 for bf16.
namespace detail {
typedef _Float16 f16x2 __attribute__((ext_vector_type(2)));
typedef short bits16x2 __attribute__((ext_vector_type(2)));
TL_DEVICE bool is_global(const void* p) { return !__builtin_amdgcn_is_shared(p); }
}  // namespace detail

TL_DEVICE void atomic_add_x2(half_t* p, vec<half_t, 2> v) {
  if (detail::is_global(p)) {
    detail::f16x2 both = {detail::as_f16(v[0].bits), detail::as_f16(v[1].bits)};
    __builtin_amdgcn_global_atomic_fadd_v2f16((TL_GLOBAL detail::f16x2*)p, both);
  } else {
    atomic_add(p, v[0]);
    atomic_add(p + 1, v[1]);
  }
}

#if TL_GFX942
TL_DEVICE void atomic_add_x2(bfloat16_t* p, vec<bfloat16_t, 2> v) {
  if (detail::is_global(p)) {
    detail::bits16x2 both = {(short)v[0].bits, (short)v[1].bits};
    __builtin_amdgcn_global_atomic_fadd_v2bf16((TL_GLOBAL detail::bits16x2*)p, both);
  } else {
    atomic_add(p, v[0]);
    atomic_add(p + 1, v[1]);
  }
}
#endif

template <class T>
TL_DEVICE void atomic_add_x4(T* p, vec<T, 4> v) {
  vec<T, 2> low, high;
  low[0] = v[0], low[1] = v[1], high[0] = v[2], high[1] = v[3];
  atomic_add_x2(p, low);
  atomic_add_x2(p + 2, high);
}

// The operands of the vector forms, from a local array.
template <class T>
TL_DEVICE void atomic_add_x2(T* p, const T* v) {
  vec<T, 2> both;
  for (int i = 0; i < 2; ++i) both[i] = v[i];
  atomic_add_x2(p, both);
}
template <class T>
TL_DEVICE void atomic_add_x4(T* p, const T* v) {
  vec<T, 4> all;
  for (int i = 0; i < 4; ++i) all[i] = v[i];
  atomic_add_x4(p, all);
}

}  // namespace tl
