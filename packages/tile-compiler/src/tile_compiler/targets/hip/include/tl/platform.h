// What HIP's own headers define and clang does not: integer types, function attributes, indices of blocks and threads.
#pragma once

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))

#define TL_DEVICE __device__ inline __attribute__((always_inline))

// __launch_bounds__(threads) and __launch_bounds__(threads, waves): the most threads of a block, and the least waves on
// one SIMD (clang's attributes, "AMD GPU Attributes" in its language reference).
#define TL_BOUNDS(threads, waves, chosen, ...) chosen
#define TL_BOUNDS_1(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define TL_BOUNDS_2(threads, waves) TL_BOUNDS_1(threads) __attribute__((amdgpu_waves_per_eu(waves)))
#define __launch_bounds__(...) TL_BOUNDS(__VA_ARGS__, TL_BOUNDS_2, TL_BOUNDS_1, )(__VA_ARGS__)

// Which of the two families is compiled for.
#if defined(__gfx942__)
#define TL_GFX942 1
#elif defined(__gfx90a__)
#define TL_GFX942 0
#else
#error "tl_hip.h is for gfx90a and gfx942"
#endif

// blockIdx, threadIdx, blockDim and gridDim: each axis reads its register where it is used.
#define TL_AXIS(name, builtin)                                 \
  struct name {                                                \
    TL_DEVICE operator unsigned() const { return builtin(); }  \
  }
#define TL_AXES(name, builtin)                  \
  struct name##_axes {                          \
    TL_AXIS(x_axis, builtin##_x) x;             \
    TL_AXIS(y_axis, builtin##_y) y;             \
    TL_AXIS(z_axis, builtin##_z) z;             \
  };                                            \
  static const __device__ name##_axes name = {}
TL_AXES(threadIdx, __builtin_amdgcn_workitem_id);
TL_AXES(blockIdx, __builtin_amdgcn_workgroup_id);
TL_AXES(blockDim, __builtin_amdgcn_workgroup_size);
#undef TL_AXES
#undef TL_AXIS
