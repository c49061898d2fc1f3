// What both vendors' headers have: shared memory, barriers, and exchange between the lanes of a warp of any size.
#pragma once

namespace tl {

// Which line of the text asks tells which buffer the pointer is for.
TL_DEVICE unsigned char* shared_memory(int line = __builtin_LINE()) { return tl_emu_shared(line); }

TL_DEVICE void sync_threads() { tl_emu_sync_threads(0, 0); }
TL_DEVICE void sync_warp() { tl_emu_sync_warp(); }
TL_DEVICE void fence() { tl_emu_thread_fence(); }

namespace detail {
template <class T>
TL_DEVICE T shuffle(T v, int mode, int argument) {
  static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
  uint64_t word = 0;
  __builtin_memcpy(&word, &v, sizeof(T));
  word = tl_emu_shuffle(word, mode, argument);
  __builtin_memcpy(&v, &word, sizeof(T));
  return v;
}
}  // namespace detail
template <class T>
TL_DEVICE T shfl_xor(T v, int mask) { return detail::shuffle(v, TL_SHUFFLE_XOR, mask); }
template <class T>
TL_DEVICE T shfl_down(T v, int delta) { return detail::shuffle(v, TL_SHUFFLE_DOWN, delta); }
template <class T>
TL_DEVICE T shfl_up(T v, int delta) { return detail::shuffle(v, TL_SHUFFLE_UP, delta); }
template <class T>
TL_DEVICE T shfl_idx(T v, int lane) { return detail::shuffle(v, TL_SHUFFLE_IDX, lane); }

TL_DEVICE bool vote_any(bool x) { return tl_emu_ballot(x) != 0; }
TL_DEVICE bool vote_all(bool x) { return tl_emu_ballot(!x) == 0; }

}  // namespace tl
