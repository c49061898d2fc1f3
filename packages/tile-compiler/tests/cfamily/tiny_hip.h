// As much of a HIP device header as the kernels of test_hip_dialect.py use. No ROCm is needed to compile against it.
#pragma once
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __restrict__ __restrict
#define __launch_bounds__(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
#define TL_DEVICE __device__ inline __attribute__((always_inline))
#define memcpy __builtin_memcpy
struct tiny_axis_t { TL_DEVICE operator int() const { return __builtin_amdgcn_workitem_id_x(); } };
struct tiny_axis_b { TL_DEVICE operator int() const { return __builtin_amdgcn_workgroup_id_x(); } };
static const __device__ struct { tiny_axis_t x; } threadIdx{};
static const __device__ struct { tiny_axis_b x; } blockIdx{};

namespace tl {
typedef _Float16 half_t;
template <class T, int n>
struct alignas(sizeof(T) * n) vec {
  T value[n];
  TL_DEVICE T& operator[](int i) { return value[i]; }
  TL_DEVICE const T& operator[](int i) const { return value[i]; }
};
TL_DEVICE unsigned char* shared_memory() {
  extern __shared__ __attribute__((aligned(1024))) unsigned char tl_dynamic_shared[];
  return tl_dynamic_shared;
}
TL_DEVICE void sync_threads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
typedef float float4_ __attribute__((ext_vector_type(4)));
typedef _Float16 half4_ __attribute__((ext_vector_type(4)));
TL_DEVICE void mfma_16x16x16_f32_f16(float* c, const void* a, const void* b) {
  *(float4_*)c = __builtin_amdgcn_mfma_f32_16x16x16f16(*(const half4_*)a, *(const half4_*)b, *(float4_*)c, 0, 0, 0);
}
}  // namespace tl
