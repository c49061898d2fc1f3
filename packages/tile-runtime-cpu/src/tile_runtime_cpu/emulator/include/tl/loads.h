// Copies from global memory to LDS.
#pragma once

namespace tl {

// CUDA's asynchronous copy as far as AMD has it: done at once, an ordinary load and an ordinary store.
template <int bytes>
TL_DEVICE void cp_async(void* shared, const void* global, bool valid = true) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "4, 8 or 16 bytes are copied");
  typedef vec<uint32_t, bytes / 4> piece;
  piece v = {};
  if (valid) v = *(const piece*)global;
  *(piece*)shared = v;
}
TL_DEVICE void cp_async_commit() {}
template <int pending>
TL_DEVICE void cp_async_wait() {}

#if !defined(__gfx90a__)
// Lane l moves its 4 bytes at `global` to lds + 4 * l; all lanes of the wave give the same `lds`. In flight until a
// wait_loads of this thread covers it ("AMD Instinct MI300" CDNA3 ISA, "Memory Buffer Load to LDS"; M0 is one per wave).
template <int bytes>
TL_DEVICE void load_to_lds(void* lds, const void* global) {
  static_assert(bytes == 4, "a lane moves 4 bytes straight to LDS");
  tl_emu_load_to_lds(lds, global, bytes);
}
#endif

// Until at most the `pending` newest of this thread's loads are in flight: they complete in order (s_waitcnt vmcnt).
template <int pending>
TL_DEVICE void wait_loads() {
  static_assert(pending >= 0 && pending < 64, "the counter of loads ends at 63");
  tl_emu_wait_loads(pending);
}

}  // namespace tl
