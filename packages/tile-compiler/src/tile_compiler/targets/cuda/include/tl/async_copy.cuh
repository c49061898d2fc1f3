// Asynchronous copies from global to shared memory (PTX ISA, "Data Movement and Conversion Instructions: cp.async").
#pragma once

namespace tl {

// Copies `bytes` (4, 8, 16), both addresses aligned to them. Not valid: writes zeros and reads nothing (the src-size
// operand). In flight until a cp_async_wait of this thread covers its group. Below sm_80 it is done at once.
template <int bytes>
TL_DEVICE void cp_async(void* shared, const void* global, bool valid = true) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16, "cp.async copies 4, 8 or 16 bytes");
#if TL_ARCH >= 800
  uint32_t size = valid ? bytes : 0;
  if (bytes == 16) {  // past L1, which would only hold what shared memory holds anyway
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(detail::shared_address(shared)), "l"(global), "r"(size)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(detail::shared_address(shared)), "l"(global),
                 "n"(bytes), "r"(size)
                 : "memory");
  }
#else
  typedef vec<uint32_t, bytes / 4> piece;
  piece v = {};
  if (valid) v = *(const piece*)global;
  *(piece*)shared = v;
#endif
}

// Closes the thread's group of copies.
TL_DEVICE void cp_async_commit() {
#if TL_ARCH >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most the `pending` newest groups of this thread are in flight.
template <int pending>
TL_DEVICE void cp_async_wait() {
#if TL_ARCH >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#endif
}

}  // namespace tl
