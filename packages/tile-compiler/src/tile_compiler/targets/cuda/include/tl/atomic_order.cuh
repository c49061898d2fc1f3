// Atomics that order other accesses: a fence before those that release, after those that acquire (PTX ISA, "Memory
// Consistency Model", release and acquire patterns). The text is shared with the emulator's header, like types.cuh.
#pragma once

namespace tl {

enum memory_order { relaxed, acquire, release, acq_rel, seq_cst };

namespace detail {

template <class T>
struct exactly {  // keeps a parameter out of the deduction of T
  typedef T type;
};

template <memory_order order>
TL_DEVICE void fence_before() {
  if (order == release || order == acq_rel || order == seq_cst) fence();
}
template <memory_order order>
TL_DEVICE void fence_after() {
  if (order == acquire || order == acq_rel || order == seq_cst) fence();
}

}  // namespace detail

#define TL_ORDERED(name)                                          \
  template <memory_order order, class T>                          \
  TL_DEVICE T name(T* p, typename detail::exactly<T>::type v) {   \
    detail::fence_before<order>();                                \
    T old = name(p, v);                                           \
    detail::fence_after<order>();                                 \
    return old;                                                   \
  }
TL_ORDERED(atomic_add)
TL_ORDERED(atomic_min)
TL_ORDERED(atomic_max)
TL_ORDERED(atomic_and)
TL_ORDERED(atomic_or)
TL_ORDERED(atomic_xor)
TL_ORDERED(atomic_exchange)
#undef TL_ORDERED

template <memory_order order, class T>
TL_DEVICE T atomic_load(const T* p) {
  detail::fence_before<order>();
  T value = atomic_load(p);
  detail::fence_after<order>();
  return value;
}

}  // namespace tl
