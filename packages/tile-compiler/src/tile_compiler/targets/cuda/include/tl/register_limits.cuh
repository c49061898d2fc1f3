// Registers moved between warpgroups (PTX ISA, "Miscellaneous Instructions: setmaxnreg"; sm_90a).
#pragma once

namespace tl {

#if TL_HAS_SM90A

// All threads of a warpgroup call it. `count` registers for each of its threads: 24 to 256 in steps of 8. increase waits
// until others have given up enough; the kernel must have been compiled with a known limit (launch bounds).
template <int count>
TL_DEVICE void register_limit_increase() {
  static_assert(count >= 24 && count <= 256 && count % 8 == 0, "setmaxnreg takes 24 to 256 in steps of 8");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
TL_DEVICE void register_limit_decrease() {
  static_assert(count >= 24 && count <= 256 && count % 8 == 0, "setmaxnreg takes 24 to 256 in steps of 8");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

#endif

}  // namespace tl
