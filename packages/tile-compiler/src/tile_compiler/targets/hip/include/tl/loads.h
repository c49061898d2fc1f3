// Copies from global memory to LDS.
#pragma once

namespace tl {

// CUDA's asynchronous copy as far as AMD has it: done at once, so that its groups and waits have nothing to do.
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

#if TL_GFX942
// Lane l's 4 bytes at `global` go to `lds` + 4 * l without a register in between; `lds` is the same in all lanes of the
// wave, all of which take part ("CDNA3 ISA", "Memory Buffer and Global Instructions: load to LDS"). In flight until a
// wait_loads of this wave covers it; another wave sees the data after that and a barrier.
template <int bytes>
TL_DEVICE void load_to_lds(void* lds, const void* global) {
  static_assert(bytes == 4, "a lane moves 4 bytes straight to LDS");
  __builtin_amdgcn_global_load_lds((TL_GLOBAL void*)global, (TL_LDS void*)lds, 4, 0, 0);
}
#endif

// Until at most `pending` of this wave's newest loads are in flight, which end in the order of their issue (S_WAITCNT:
// the counter of loads in bits 3:0 and 15:14, the others left at their greatest value).
template <int pending>
TL_DEVICE void wait_loads() {
  static_assert(pending >= 0 && pending < 64, "the counter of loads ends at 63");
  asm volatile("" ::: "memory");  // no access moves across: the compiler does not know what the counter stands for
  __builtin_amdgcn_s_waitcnt((pending & 15) | 0x0f70 | (pending >> 4) << 14);
  asm volatile("" ::: "memory");
}

}  // namespace tl
