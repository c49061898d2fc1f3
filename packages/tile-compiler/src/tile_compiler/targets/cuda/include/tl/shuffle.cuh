// Exchange between the lanes of a full warp (PTX ISA, "shfl.sync", "vote.sync"), for types of 1 to 8 bytes.
// None of these orders memory: that is sync_warp's.
#pragma once

namespace tl {
namespace detail {

template <class T>
union lane_word {
  unsigned long long all;
  T value;
  TL_DEVICE lane_word() : all(0) {}
};

}  // namespace detail

#define TL_SHUFFLE(name, intrinsic, argument)                                    \
  template <class T>                                                             \
  TL_DEVICE T name(T v, int argument) {                                          \
    static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");              \
    detail::lane_word<T> word;                                                   \
    word.value = v;                                                              \
    if (sizeof(T) <= 4) {                                                        \
      word.all = intrinsic(0xffffffffu, (unsigned)word.all, argument);           \
    } else {                                                                     \
      word.all = intrinsic(0xffffffffu, word.all, argument);                     \
    }                                                                            \
    return word.value;                                                           \
  }
TL_SHUFFLE(shfl_xor, __shfl_xor_sync, mask)    // of lane (own ^ mask)
TL_SHUFFLE(shfl_down, __shfl_down_sync, delta) // of lane own + delta, own value where there is none
TL_SHUFFLE(shfl_up, __shfl_up_sync, delta)     // of lane own - delta, own value where there is none
TL_SHUFFLE(shfl_idx, __shfl_sync, lane)        // of lane (lane % 32)
#undef TL_SHUFFLE

// A value that is the same in all lanes of the warp, told to the compiler as such: it may keep it in a uniform register.
TL_DEVICE int uniform(int v) { return __shfl_sync(0xffffffffu, v, 0); }

// The 4 x 4 matrix of 32-bit words that four neighbouring lanes hold as rows, transposed: word r of lane t becomes word t
// of lane r (of their four).
TL_DEVICE void transpose_quad(void* words) {
  uint32_t* w = (uint32_t*)words;
#pragma unroll
  for (int s = 1; s < 4; s *= 2) {
    bool upper = (threadIdx.x & s) != 0;
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if (r & s) continue;
      uint32_t other = shfl_xor(upper ? w[r] : w[r | s], s);
      if (upper) w[r] = other;
      else w[r | s] = other;
    }
  }
}

TL_DEVICE bool vote_any(bool x) { return __any_sync(0xffffffffu, x); }
TL_DEVICE bool vote_all(bool x) { return __all_sync(0xffffffffu, x); }
TL_DEVICE uint32_t vote_ballot(bool x) { return __ballot_sync(0xffffffffu, x); }

}  // namespace tl
