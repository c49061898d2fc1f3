// Address spaces, and the block's memory on chip (LDS, the local data share).
#pragma once

#define TL_GLOBAL __attribute__((address_space(1)))
#define TL_LDS __attribute__((address_space(3)))
#define TL_CONSTANT __attribute__((address_space(4)))

namespace tl {

// The block's dynamic LDS; its size is a parameter of the launch.
TL_DEVICE unsigned char* shared_memory() {
  extern __shared__ __attribute__((aligned(1024))) unsigned char tl_dynamic_shared[];
  return tl_dynamic_shared;
}

}  // namespace tl

// A copy of bytes, under the name that C gives it.
TL_DEVICE void memcpy(void* to, const void* from, unsigned long bytes) { __builtin_memcpy(to, from, bytes); }
