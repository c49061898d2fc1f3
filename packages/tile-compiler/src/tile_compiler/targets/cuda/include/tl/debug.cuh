// Diagnostics from inside a kernel.
#pragma once

namespace tl {

template <class... Arguments>
TL_DEVICE void print(const char* format, Arguments... arguments) {
  printf(format, arguments...);
}

// Ends the launch with an error; `code` is the number of the text in the manifest's `errors`, from 1.
TL_DEVICE void device_assert(bool condition, int code) {
  if (!condition) {
    printf("tl: device_assert %d failed in block (%u, %u, %u), thread %u\n", code, blockIdx.x, blockIdx.y, blockIdx.z,
           threadIdx.x);
    __trap();
  }
}

}  // namespace tl
