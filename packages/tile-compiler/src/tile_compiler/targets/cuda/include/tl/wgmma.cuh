// Matrix multiply-accumulate of a warpgroup, asynchronous (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions:
// wgmma.mma_async"; sm_90a): d (64 x n) = a (64 x k) * b (k x n) + d, or without d.
//
// Names: wgmma_m64k<k>_<accumulator>_<a>[_<b>]<n, major of a, major of b>(d, a, b, scale_d), n = 8 to 256 in steps of 8 (int8:
// 8, 16, 24, 32, then multiples of 16). a and b are descriptors of shared memory; with _rs a is the lane's registers. d holds
// n / 2 registers of a lane (f16: n / 4): of warp w of the warpgroup and lane l, element 4 * j + 2 * h + i is row
// 16 * w + l / 4 + 8 * h, column 8 * j + 2 * (l % 4) + i. scale_d false: d is written without being read.
//
// Between wgmma_fence and the wgmma_wait that covers it, nothing else may touch d, a's registers, or write a's and b's memory.
#pragma once

#if TL_HAS_SM90A
#include "tl/wgmma_shapes.cuh"
#endif

namespace tl {

enum major { k_major = 0, mn_major = 1 };

#if TL_HAS_SM90A

// Orders earlier accesses of d and of a's registers before the wgmma that follow.
TL_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Closes the warpgroup's group of wgmma.
TL_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most the `pending` newest groups are under way.
template <int pending>
TL_DEVICE void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory"); }

// Keeps the C++ compiler from moving accesses of these registers across this point: before wgmma_fence and after wgmma_wait.
template <int count>
TL_DEVICE void wgmma_hold(void* registers) {
  uint32_t* r = (uint32_t*)registers;
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+r"(r[i])::"memory");
}
template <int count>
TL_DEVICE void wgmma_hold(float* r) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

// A matrix in shared memory that begins `advance_bytes` behind `shared`, within a swizzled row too. `swizzle` (bytes): 0, 32,
// 64, 128, as the tensor map that brought it has it. Strides in bytes, multiples of 16. K-major: stride_bytes from 8 rows to
// the next 8; leading_bytes between the two 16-byte columns of a k step, without swizzle only. MN-major: stride_bytes from 8 k
// to the next 8, leading_bytes between pieces of `swizzle` bytes along m or n (without swizzle the reverse).
// Descriptors that differ by a constant advance cost one addition each: they share all that depends on `shared`.
template <int swizzle>
TL_DEVICE uint64_t wgmma_descriptor(const void* shared, uint32_t leading_bytes, uint32_t stride_bytes,
                                    uint32_t advance_bytes = 0) {
  static_assert(swizzle == 0 || swizzle == 32 || swizzle == 64 || swizzle == 128, "a swizzle of 0, 32, 64 or 128 bytes");
  constexpr uint32_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
  uint32_t low = ((detail::shared_address(shared) & 0x3ffff) >> 4 | (leading_bytes >> 4 & 0x3fff) << 16) + (advance_bytes >> 4);
  return (uint64_t)(stride_bytes >> 4 & 0x3fff | mode << 30) << 32 | low;
}

// The same matrix `bytes` further: what a step along k adds, within a swizzled row too.
TL_DEVICE uint64_t wgmma_descriptor_advance(uint64_t descriptor, uint32_t bytes) { return descriptor + (bytes >> 4); }

namespace detail {

// The text of one kind of wgmma: k and element types, then scale-a, scale-b (always 1) and the major orders.
#define TL_WGMMA_KIND(name, text)                                       \
  struct name {                                                         \
    static constexpr char types[] = text, immediates[] = ", 1, 1";      \
  };
#define TL_WGMMA_INTEGER_KIND(name, text)                               \
  struct name {                                                         \
    static constexpr char types[] = text, immediates[] = "";            \
  };
// 16-bit elements may lie in either order. With a in registers only b's order is an operand.
#define TL_WGMMA_KIND_16(name, text)                                                       \
  template <int a_major, int b_major>                                                      \
  struct name {                                                                            \
    static constexpr char types[] = text;                                                  \
    static constexpr char immediates[] = {',', ' ', '1', ',', ' ', '1', ',', ' ', '0' + a_major, ',', ' ', '0' + b_major, 0}; \
  };                                                                                       \
  template <int b_major>                                                                   \
  struct name##_rs {                                                                       \
    static constexpr char types[] = text;                                                  \
    static constexpr char immediates[] = {',', ' ', '1', ',', ' ', '1', ',', ' ', '0' + b_major, 0}; \
  };
TL_WGMMA_KIND_16(f32_f16, "16.f32.f16.f16")
TL_WGMMA_KIND_16(f32_bf16, "16.f32.bf16.bf16")
TL_WGMMA_KIND_16(f16_f16, "16.f16.f16.f16")
TL_WGMMA_KIND(f32_tf32, "8.f32.tf32.tf32")
TL_WGMMA_KIND(f32_e4m3, "32.f32.e4m3.e4m3")
TL_WGMMA_KIND(f32_e5m2, "32.f32.e5m2.e5m2")
TL_WGMMA_KIND(f32_e4m3_e5m2, "32.f32.e4m3.e5m2")
TL_WGMMA_KIND(f32_e5m2_e4m3, "32.f32.e5m2.e4m3")
TL_WGMMA_KIND(f16_e4m3, "32.f16.e4m3.e4m3")
TL_WGMMA_KIND(f16_e5m2, "32.f16.e5m2.e5m2")
TL_WGMMA_KIND(f16_e4m3_e5m2, "32.f16.e4m3.e5m2")
TL_WGMMA_KIND(f16_e5m2_e4m3, "32.f16.e5m2.e4m3")
TL_WGMMA_INTEGER_KIND(s32_s8, "32.s32.s8.s8")
TL_WGMMA_INTEGER_KIND(s32_u8, "32.s32.u8.u8")
TL_WGMMA_INTEGER_KIND(s32_s8_u8, "32.s32.s8.u8")
TL_WGMMA_INTEGER_KIND(s32_u8_s8, "32.s32.u8.s8")
#undef TL_WGMMA_KIND
#undef TL_WGMMA_INTEGER_KIND
#undef TL_WGMMA_KIND_16

}  // namespace detail

#define TL_WGMMA_16_BIT(name, name_rs, kind, family, type)                                                        \
  template <int n, int a_major = k_major, int b_major = k_major>                                                  \
  TL_DEVICE void name(void* d, uint64_t a, uint64_t b, bool scale_d = true) {                                     \
    detail::family<n>::template shared_shared<detail::kind<a_major, b_major>>((type*)d, a, b, scale_d);           \
  }                                                                                                               \
  template <int n, int b_major = k_major>                                                                         \
  TL_DEVICE void name_rs(void* d, const void* a, uint64_t b, bool scale_d = true) {                               \
    detail::family<n>::template register_shared<detail::kind##_rs<b_major>>((type*)d, (const uint32_t*)a, b, scale_d); \
  }
TL_WGMMA_16_BIT(wgmma_m64k16_f32_f16, wgmma_m64k16_f32_f16_rs, f32_f16, wgmma_float, float)
TL_WGMMA_16_BIT(wgmma_m64k16_f32_bf16, wgmma_m64k16_f32_bf16_rs, f32_bf16, wgmma_float, float)
TL_WGMMA_16_BIT(wgmma_m64k16_f16_f16, wgmma_m64k16_f16_f16_rs, f16_f16, wgmma_half, uint32_t)
#undef TL_WGMMA_16_BIT

// The others want both matrices K-major.
#define TL_WGMMA_K_MAJOR(name, name_rs, kind, family, type)                                                       \
  template <int n>                                                                                                \
  TL_DEVICE void name(void* d, uint64_t a, uint64_t b, bool scale_d = true) {                                     \
    detail::family<n>::template shared_shared<detail::kind>((type*)d, a, b, scale_d);                             \
  }                                                                                                               \
  template <int n>                                                                                                \
  TL_DEVICE void name_rs(void* d, const void* a, uint64_t b, bool scale_d = true) {                               \
    detail::family<n>::template register_shared<detail::kind>((type*)d, (const uint32_t*)a, b, scale_d);          \
  }
TL_WGMMA_K_MAJOR(wgmma_m64k8_f32_tf32, wgmma_m64k8_f32_tf32_rs, f32_tf32, wgmma_float, float)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f32_e4m3, wgmma_m64k32_f32_e4m3_rs, f32_e4m3, wgmma_float, float)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f32_e5m2, wgmma_m64k32_f32_e5m2_rs, f32_e5m2, wgmma_float, float)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f32_e4m3_e5m2, wgmma_m64k32_f32_e4m3_e5m2_rs, f32_e4m3_e5m2, wgmma_float, float)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f32_e5m2_e4m3, wgmma_m64k32_f32_e5m2_e4m3_rs, f32_e5m2_e4m3, wgmma_float, float)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f16_e4m3, wgmma_m64k32_f16_e4m3_rs, f16_e4m3, wgmma_half, uint32_t)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f16_e5m2, wgmma_m64k32_f16_e5m2_rs, f16_e5m2, wgmma_half, uint32_t)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f16_e4m3_e5m2, wgmma_m64k32_f16_e4m3_e5m2_rs, f16_e4m3_e5m2, wgmma_half, uint32_t)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f16_e5m2_e4m3, wgmma_m64k32_f16_e5m2_e4m3_rs, f16_e5m2_e4m3, wgmma_half, uint32_t)
TL_WGMMA_K_MAJOR(wgmma_m64k32_s32_s8, wgmma_m64k32_s32_s8_rs, s32_s8, wgmma_int, int)
TL_WGMMA_K_MAJOR(wgmma_m64k32_s32_u8, wgmma_m64k32_s32_u8_rs, s32_u8, wgmma_int, int)
TL_WGMMA_K_MAJOR(wgmma_m64k32_s32_s8_u8, wgmma_m64k32_s32_s8_u8_rs, s32_s8_u8, wgmma_int, int)
TL_WGMMA_K_MAJOR(wgmma_m64k32_s32_u8_s8, wgmma_m64k32_s32_u8_s8_rs, s32_u8_s8, wgmma_int, int)
#undef TL_WGMMA_K_MAJOR

#endif

}  // namespace tl
