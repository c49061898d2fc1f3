// Shared memory of the block.
#pragma once

namespace tl {

// The block's dynamic shared memory; its size is a parameter of the launch. 1024: the widest swizzle's period.
TL_DEVICE unsigned char* shared_memory() {
  extern __shared__ __align__(1024) unsigned char tl_dynamic_shared[];
  return tl_dynamic_shared;
}

namespace detail {
// Address in the shared window, as the instructions below want it.
TL_DEVICE uint32_t shared_address(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
}  // namespace detail

}  // namespace tl
