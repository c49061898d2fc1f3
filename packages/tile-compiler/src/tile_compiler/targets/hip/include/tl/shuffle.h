// Exchange between the 64 lanes of a wave, for types of 1 to 8 bytes (ISA, "Data Share Operations: DS_BPERMUTE_B32").
// None of these orders memory: that is sync_warp's.
#pragma once

namespace tl {
namespace detail {

TL_DEVICE int lane() { return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u)); }

// The value of lane `from`; every lane that is asked must be active.
template <class T>
TL_DEVICE T of_lane(T v, int from) {
  static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
  int words[2] = {};
  __builtin_memcpy(words, &v, sizeof(T));
  words[0] = __builtin_amdgcn_ds_bpermute(from << 2, words[0]);
  if (sizeof(T) > 4) words[1] = __builtin_amdgcn_ds_bpermute(from << 2, words[1]);
  __builtin_memcpy(&v, words, sizeof(T));
  return v;
}

}  // namespace detail

// Of lane (own ^ mask).
template <class T>
TL_DEVICE T shfl_xor(T v, int mask) {
  return detail::of_lane(v, detail::lane() ^ mask);
}
// Of lane own + delta, own value where there is none.
template <class T>
TL_DEVICE T shfl_down(T v, int delta) {
  int from = detail::lane() + delta;
  return detail::of_lane(v, from < 64 ? from : detail::lane());
}
// Of lane own - delta, own value where there is none.
template <class T>
TL_DEVICE T shfl_up(T v, int delta) {
  int from = detail::lane() - delta;
  return detail::of_lane(v, from >= 0 ? from : detail::lane());
}
// Of lane (lane % 64).
template <class T>
TL_DEVICE T shfl_idx(T v, int lane) {
  return detail::of_lane(v, lane & 63);
}

TL_DEVICE uint64_t vote_ballot(bool x) { return __builtin_amdgcn_ballot_w64(x); }
TL_DEVICE bool vote_any(bool x) { return vote_ballot(x) != 0; }
TL_DEVICE bool vote_all(bool x) { return vote_ballot(!x) == 0; }

}  // namespace tl
