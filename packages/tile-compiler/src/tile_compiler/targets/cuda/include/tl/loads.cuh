// Loads that say what the caches shall do with the line (PTX ISA, "Data Movement and Conversion Instructions: ld.global.nc,
// createpolicy").
#pragma once

namespace tl {

#if TL_HAS(900)

// 4, 8 or 16 bytes of memory that nobody writes while the kernel runs; zeros, and no access, where not `valid`.
// evict_first: read once, so L1 keeps nothing of it and L2 gives it up before all else. evict_last: read again, so both give
// it up after all else.
template <int hint, class T>
TL_DEVICE T load(const T* at, bool valid = true) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "4, 8 or 16 bytes are loaded at once");
  const uint64_t policy = detail::cache_policy<hint>();
  union {
    uint32_t words[sizeof(T) / 4];
    T value;
  } found = {};
  uint32_t(&w)[sizeof(T) / 4] = found.words;
#define TL_LOAD(l1)                                                                                                   \
  if constexpr (sizeof(T) == 16) {                                                                                    \
    asm("{ .reg .pred p; setp.ne.b32 p, %6, 0; @p ld.global.nc.L1::" l1 ".L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5; }" \
        : "+r"(w[0]), "+r"(w[1]), "+r"(w[2]), "+r"(w[3])                                                              \
        : "l"(at), "l"(policy), "r"((int)valid));                                                                     \
  } else if constexpr (sizeof(T) == 8) {                                                                              \
    asm("{ .reg .pred p; setp.ne.b32 p, %4, 0; @p ld.global.nc.L1::" l1 ".L2::cache_hint.v2.b32 {%0, %1}, [%2], %3; }" \
        : "+r"(w[0]), "+r"(w[1])                                                                                      \
        : "l"(at), "l"(policy), "r"((int)valid));                                                                     \
  } else {                                                                                                            \
    asm("{ .reg .pred p; setp.ne.b32 p, %3, 0; @p ld.global.nc.L1::" l1 ".L2::cache_hint.b32 %0, [%1], %2; }"          \
        : "+r"(w[0])                                                                                                  \
        : "l"(at), "l"(policy), "r"((int)valid));                                                                     \
  }
  if constexpr (hint == evict_first) {
    TL_LOAD("no_allocate")
  } else {
    TL_LOAD("evict_last")
  }
#undef TL_LOAD
  return found.value;
}

#endif

}  // namespace tl
