// Diagnostics from inside a kernel.
#pragma once

extern "C" __device__ int printf(const char* format, ...);

// Room in the buffer that the HIP runtime hands to a kernel that prints, and whose content it prints after the launch
// (clang's -mprintf-kind=buffered calls this function by its name; with ROCm its device library defines it). The buffer
// begins with the bytes used and its size; its address lies 72 bytes into the hidden arguments of code object version 5
// ("Code Object V5 Metadata: hidden_printf_buffer" in LLVM's guide).
extern "C" __device__ inline TL_GLOBAL char* __printf_alloc(unsigned bytes) {
  TL_CONSTANT const char* hidden = (TL_CONSTANT const char*)__builtin_amdgcn_implicitarg_ptr();
  TL_GLOBAL char* buffer = *(TL_GLOBAL char* TL_CONSTANT const*)(hidden + 72);
  TL_GLOBAL unsigned* head = (TL_GLOBAL unsigned*)buffer;
  unsigned size = head[1], used = __hip_atomic_load(head, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  do {
    if (8 + used + bytes > size) return 0;
  } while (!__hip_atomic_compare_exchange_strong(head, &used, used + bytes, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                                 __HIP_MEMORY_SCOPE_AGENT));
  return buffer + 8 + used;
}

namespace tl {

template <class... Arguments>
TL_DEVICE void print(const char* format, Arguments... arguments) {
  (void)&__printf_alloc;  // the compiler's call is none that makes it define the function
  printf(format, arguments...);
}

// Prints the text and the thread, then traps, which ends the launch with an error. `code` is the number of the text in the
// manifest's `errors`, from 1.
TL_DEVICE void device_assert(bool condition, int code, const char* text = "") {
  if (!condition) {
    print("T.device_assert %d failed in block (%u, %u, %u), thread %u: %s\n", code, (unsigned)blockIdx.x,
          (unsigned)blockIdx.y, (unsigned)blockIdx.z, (unsigned)threadIdx.x, text);
    __builtin_trap();
  }
}

}  // namespace tl
