// Atomics on one element, relaxed, of the whole device, on shared or global memory. All but the x2 and x4 forms return the
// old value (PTX ISA, "Parallel Synchronization and Communication Instructions: atom, red"). Where the hardware has no such operation, a loop
// over compare-and-swap does it.
#pragma once

namespace tl {
namespace detail {

template <int bytes>
struct cas_word {};
template <>
struct cas_word<2> {
  typedef unsigned short type;
};
template <>
struct cas_word<4> {
  typedef unsigned type;
};
template <>
struct cas_word<8> {
  typedef unsigned long long type;
};

// old = *p; *p = operation(old), as one step. Bits are compared, so NaN ends the loop too.
template <class T, class Operation>
TL_DEVICE T atomic_update(T* p, Operation operation) {
  typedef typename cas_word<sizeof(T)>::type word;
  union pair {
    word bits;
    T value;
    TL_DEVICE pair() : bits(0) {}
  } old, wanted;
  old.bits = *(volatile word*)p;
  while (true) {
    wanted.value = operation(old.value);
    word seen = atomicCAS((word*)p, old.bits, wanted.bits);
    if (seen == old.bits) return old.value;
    old.bits = seen;
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
#define TL_ATOMIC(name, intrinsic, type, word) \
  TL_DEVICE type name(type* p, type v) { return (type)intrinsic((word*)p, (word)v); }
#define TL_ATOMIC_INTEGERS(name, intrinsic)                                     \
  TL_ATOMIC(name, intrinsic, int, int)                                          \
  TL_ATOMIC(name, intrinsic, unsigned, unsigned)                                \
  TL_ATOMIC(name, intrinsic, long, long long)                                   \
  TL_ATOMIC(name, intrinsic, unsigned long, unsigned long long)                 \
  TL_ATOMIC(name, intrinsic, long long, long long)                              \
  TL_ATOMIC(name, intrinsic, unsigned long long, unsigned long long)
#define TL_ATOMIC_BITS(name, intrinsic)                                         \
  TL_ATOMIC(name, intrinsic, int, unsigned)                                     \
  TL_ATOMIC(name, intrinsic, unsigned, unsigned)                                \
  TL_ATOMIC(name, intrinsic, long, unsigned long long)                          \
  TL_ATOMIC(name, intrinsic, unsigned long, unsigned long long)                 \
  TL_ATOMIC(name, intrinsic, long long, unsigned long long)                     \
  TL_ATOMIC(name, intrinsic, unsigned long long, unsigned long long)
TL_ATOMIC(atomic_add, atomicAdd, int, int)
TL_ATOMIC(atomic_add, atomicAdd, unsigned, unsigned)
TL_ATOMIC(atomic_add, atomicAdd, long, unsigned long long)
TL_ATOMIC(atomic_add, atomicAdd, unsigned long, unsigned long long)
TL_ATOMIC(atomic_add, atomicAdd, long long, unsigned long long)
TL_ATOMIC(atomic_add, atomicAdd, unsigned long long, unsigned long long)
TL_ATOMIC(atomic_add, atomicAdd, float, float)
TL_ATOMIC(atomic_add, atomicAdd, double, double)
TL_ATOMIC_INTEGERS(atomic_min, atomicMin)
TL_ATOMIC_INTEGERS(atomic_max, atomicMax)
TL_ATOMIC_BITS(atomic_and, atomicAnd)
TL_ATOMIC_BITS(atomic_or, atomicOr)
TL_ATOMIC_BITS(atomic_xor, atomicXor)
TL_ATOMIC_BITS(atomic_exchange, atomicExch)
TL_DEVICE float atomic_exchange(float* p, float v) { return atomicExch(p, v); }
#undef TL_ATOMIC
#undef TL_ATOMIC_INTEGERS
#undef TL_ATOMIC_BITS

TL_DEVICE double atomic_exchange(double* p, double v) {
  return __longlong_as_double((long long)atomicExch((unsigned long long*)p, (unsigned long long)__double_as_longlong(v)));
}

// Operations by compare-and-swap: exchange of f16 and bf16, minimum and maximum of floats.
TL_DEVICE half_t atomic_exchange(half_t* p, half_t v) { return detail::atomic_update(p, detail::replacing<half_t>{v}); }
TL_DEVICE bfloat16_t atomic_exchange(bfloat16_t* p, bfloat16_t v) {
  return detail::atomic_update(p, detail::replacing<bfloat16_t>{v});
}
#define TL_ATOMIC_EXTREMES(type)                                                                          \
  TL_DEVICE type atomic_min(type* p, type v) { return detail::atomic_update(p, detail::least<type>{v}); } \
  TL_DEVICE type atomic_max(type* p, type v) { return detail::atomic_update(p, detail::greatest<type>{v}); }
TL_ATOMIC_EXTREMES(float)
TL_ATOMIC_EXTREMES(double)
TL_ATOMIC_EXTREMES(half_t)
TL_ATOMIC_EXTREMES(bfloat16_t)
#undef TL_ATOMIC_EXTREMES

TL_DEVICE half_t atomic_add(half_t* p, half_t v) {
  uint16_t old;
  asm volatile("atom.add.noftz.f16 %0, [%1], %2;" : "=h"(old) : "l"(p), "h"(v.bits) : "memory");
  return half_t::from_bits(old);
}

TL_DEVICE bfloat16_t atomic_add(bfloat16_t* p, bfloat16_t v) {
#if TL_ARCH >= 900
  uint16_t old;
  asm volatile("atom.add.noftz.bf16 %0, [%1], %2;" : "=h"(old) : "l"(p), "h"(v.bits) : "memory");
  return bfloat16_t::from_bits(old);
#else
  return detail::atomic_update(p, detail::adding<bfloat16_t>{v});
#endif
}

// One element, never torn (PTX ISA, "ld", .relaxed).
template <class T>
TL_DEVICE T atomic_load(const T* p) {
  union {
    typename detail::cas_word<sizeof(T)>::type bits;
    T value;
  } seen = {0};
  if constexpr (sizeof(T) == 2) {
    asm volatile("ld.relaxed.gpu.u16 %0, [%1];" : "=h"(seen.bits) : "l"(p) : "memory");
  } else if constexpr (sizeof(T) == 4) {
    asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(seen.bits) : "l"(p) : "memory");
  } else {
    asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(seen.bits) : "l"(p) : "memory");
  }
  return seen.value;
}

// Several neighbours; each element is atomic by itself. p is aligned to all of them.
template <class T>
TL_DEVICE void atomic_add_x2(T* p, vec<T, 2> v) {
  atomic_add(p, v[0]);
  atomic_add(p + 1, v[1]);
}

// An instruction that may meet either memory needs a loop for the shared one; kernels know their pointers, and drop it.
#define TL_ATOMIC_PACKED_X2(name, type, packed)                                                              \
  TL_DEVICE void name(type* p, vec<type, 2> v) {                                                             \
    uint32_t both = v[0].bits | (uint32_t)v[1].bits << 16;                                                   \
    if (__isGlobal(p)) {                                                                                     \
      asm volatile("red.global.add.noftz." packed " [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(both) \
                   : "memory");                                                                              \
    } else {                                                                                                 \
      asm volatile("red.add.noftz." packed " [%0], %1;" ::"l"(p), "r"(both) : "memory");                     \
    }                                                                                                        \
  }
TL_ATOMIC_PACKED_X2(atomic_add_x2, half_t, "f16x2")

#if TL_ARCH >= 900
TL_ATOMIC_PACKED_X2(atomic_add_x2, bfloat16_t, "bf16x2")

// The vector form is of global memory only; sums of this kind are never kept in shared memory by the compiler, but
// user code may, hence the question.
TL_DEVICE void atomic_add_x2(float* p, vec<float, 2> v) {
  if (__isGlobal(p)) {
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "f"(v[0]), "f"(v[1])
                 : "memory");
  } else {
    atomic_add(p, v[0]);
    atomic_add(p + 1, v[1]);
  }
}
#endif

#undef TL_ATOMIC_PACKED_X2

template <class T>
TL_DEVICE void atomic_add_x4(T* p, vec<T, 4> v) {
  vec<T, 2> low, high;
  low[0] = v[0], low[1] = v[1], high[0] = v[2], high[1] = v[3];
  atomic_add_x2(p, low);
  atomic_add_x2(p + 2, high);
}

#if TL_ARCH >= 900
#define TL_ATOMIC_PACKED_X4(name, type, packed)                                                                      \
  TL_DEVICE void name(type* p, vec<type, 4> v) {                                                                     \
    if (__isGlobal(p)) {                                                                                             \
      uint32_t low = v[0].bits | (uint32_t)v[1].bits << 16, high = v[2].bits | (uint32_t)v[3].bits << 16;            \
      asm volatile("red.global.add.noftz.v2." packed " [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "r"(low), \
                   "r"(high)                                                                                         \
                   : "memory");                                                                                      \
    } else {                                                                                                         \
      for (int i = 0; i < 4; ++i) atomic_add(p + i, v[i]);                                                           \
    }                                                                                                                \
  }
TL_ATOMIC_PACKED_X4(atomic_add_x4, half_t, "f16x2")
TL_ATOMIC_PACKED_X4(atomic_add_x4, bfloat16_t, "bf16x2")
#undef TL_ATOMIC_PACKED_X4

TL_DEVICE void atomic_add_x4(float* p, vec<float, 4> v) {
  if (__isGlobal(p)) {
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p)), "f"(v[0]), "f"(v[1]),
                 "f"(v[2]), "f"(v[3])
                 : "memory");
  } else {
    for (int i = 0; i < 4; ++i) atomic_add(p + i, v[i]);
  }
}
#endif

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
