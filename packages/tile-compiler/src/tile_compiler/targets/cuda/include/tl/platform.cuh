// What differs between NVRTC and nvcc: integer types and a few macros.
#pragma once

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#else
#include <cstdint>
#include <cstdio>
#endif

#if !defined(INFINITY)
#define INFINITY __int_as_float(0x7f800000)
#endif
#if !defined(NAN)
#define NAN __int_as_float(0x7fffffff)
#endif

#define TL_DEVICE __device__ __forceinline__

// Architecture of this compilation, 0 in nvcc's host pass.
#if defined(__CUDA_ARCH__)
#define TL_ARCH __CUDA_ARCH__
#else
#define TL_ARCH 0
#endif
// The host pass of nvcc parses kernels too and must find every name.
#define TL_HAS(arch) (TL_ARCH == 0 || TL_ARCH >= (arch))
// Instructions of sm_90a alone.
#if TL_ARCH == 0 || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TL_HAS_SM90A 1
#else
#define TL_HAS_SM90A 0
#endif
