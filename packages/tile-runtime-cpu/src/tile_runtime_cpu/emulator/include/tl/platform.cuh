// CUDA's words, which are HIP's too, for the host compiler.
#pragma once

#include "abi.h"

#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

#define threadIdx (tl_emu_self()->thread_index)
#define blockIdx (tl_emu_self()->block_index)
#define blockDim (tl_emu_self()->block_size)
#define gridDim (tl_emu_self()->grid_size)

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

#define TL_HOST 1  // as where the CPU target compiles a text of T.import_source
#define TL_DEVICE inline __attribute__((always_inline))
