// Diagnostics from inside a kernel.
#pragma once

namespace tl {

template <class... Arguments>
TL_DEVICE void print(const char* format, Arguments... arguments) {
  printf(format, arguments...);
}

// Ends the launch with an error, as CUDA's own `assert` does: the driver writes the text, the block and the thread to the
// host's stderr, and the next synchronization fails with CUDA_ERROR_ASSERT (programming guide, "Assertion").
// `code` is the number of the text in the manifest's `errors`, from 1.
TL_DEVICE void device_assert(bool condition, int code, const char* text = "") {
  if (!condition) {
#if defined(__CUDACC_RTC__)
    __assertfail(text, "kernel", code, "T.device_assert", sizeof(char));
#else
    printf("T.device_assert %d failed in block (%u, %u, %u), thread %u: %s\n", code, blockIdx.x, blockIdx.y, blockIdx.z,
           threadIdx.x, text);
    __trap();
#endif
  }
}

}  // namespace tl
