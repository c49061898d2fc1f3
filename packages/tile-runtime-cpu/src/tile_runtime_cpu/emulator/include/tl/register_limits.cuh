// Registers moved between warpgroups.
#pragma once

namespace tl {

template <int count>
TL_DEVICE void register_limit_increase() {
  static_assert(count >= 24 && count <= 256 && count % 8 == 0, "setmaxnreg takes 24 to 256 in steps of 8");
  tl_emu_set_registers(count, 1);
}
template <int count>
TL_DEVICE void register_limit_decrease() {
  static_assert(count >= 24 && count <= 256 && count % 8 == 0, "setmaxnreg takes 24 to 256 in steps of 8");
  tl_emu_set_registers(count, 0);
}

}  // namespace tl
