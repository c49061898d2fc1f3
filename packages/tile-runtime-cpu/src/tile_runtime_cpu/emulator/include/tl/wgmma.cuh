// Matrix multiply-accumulate of a warpgroup; the product is the runtime's.
#pragma once

namespace tl {

enum major { k_major = 0, mn_major = 1 };

TL_DEVICE void wgmma_fence() { tl_emu_wgmma_fence(); }
TL_DEVICE void wgmma_commit() { tl_emu_wgmma_commit(); }
template <int pending>
TL_DEVICE void wgmma_wait() { tl_emu_wgmma_wait(pending); }
template <int count>
TL_DEVICE void wgmma_hold(void*) {}

template <int swizzle>
TL_DEVICE uint64_t wgmma_descriptor(const void* shared, uint32_t leading_bytes, uint32_t stride_bytes,
                                    uint32_t advance_bytes = 0) {
  static_assert(swizzle == 0 || swizzle == 32 || swizzle == 64 || swizzle == 128, "a swizzle of 0, 32, 64 or 128 bytes");
  constexpr uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
  uint64_t address = (uint64_t)((const unsigned char*)shared - tl_emu_self()->shared);
  uint64_t window = address >> 24;  // of shared memory, see runtime/windows.cpp
  return ((address & 0x3ffff) >> 4) + (advance_bytes >> 4) | window << 52 | (uint64_t)(leading_bytes >> 4 & 0x3fff) << 16 |
         (uint64_t)(stride_bytes >> 4 & 0x3fff) << 32 | mode << 62;
}
TL_DEVICE uint64_t wgmma_descriptor_advance(uint64_t descriptor, uint32_t bytes) { return descriptor + (bytes >> 4); }

namespace detail {
template <int n, bool integer>
TL_DEVICE void wgmma(void* d, const void* a, uint64_t a_descriptor, uint64_t b_descriptor, int types, int majors,
                     bool scale_d) {
  static_assert(n >= 8 && n <= 256 && n % 8 == 0, "n is 8 to 256 in steps of 8");
  static_assert(!integer || n <= 24 || n % 16 == 0, "n of integers is 8, 16, 24 or a multiple of 16");
  tl_emu_wgmma(d, a, a_descriptor, b_descriptor, n, types, majors, scale_d);
}
}  // namespace detail

#define TL_WGMMA_16_BIT(name, name_rs, a_type, b_type, f16_accumulator)                                             \
  template <int n, int a_major = k_major, int b_major = k_major>                                                    \
  TL_DEVICE void name(void* d, uint64_t a, uint64_t b, bool scale_d = true) {                                       \
    detail::wgmma<n, false>(d, nullptr, a, b, a_type | b_type << 4 | f16_accumulator << 8, a_major | b_major << 1, scale_d); \
  }                                                                                                                 \
  template <int n, int b_major = k_major>                                                                           \
  TL_DEVICE void name_rs(void* d, const void* a, uint64_t b, bool scale_d = true) {                                 \
    detail::wgmma<n, false>(d, a, 0, b, a_type | b_type << 4 | f16_accumulator << 8, b_major << 1, scale_d);        \
  }
TL_WGMMA_16_BIT(wgmma_m64k16_f32_f16, wgmma_m64k16_f32_f16_rs, TL_F16, TL_F16, 0)
TL_WGMMA_16_BIT(wgmma_m64k16_f32_bf16, wgmma_m64k16_f32_bf16_rs, TL_BF16, TL_BF16, 0)
TL_WGMMA_16_BIT(wgmma_m64k16_f16_f16, wgmma_m64k16_f16_f16_rs, TL_F16, TL_F16, 1)
#undef TL_WGMMA_16_BIT

#define TL_WGMMA_K_MAJOR(name, name_rs, a_type, b_type, f16_accumulator)                                            \
  template <int n>                                                                                                  \
  TL_DEVICE void name(void* d, uint64_t a, uint64_t b, bool scale_d = true) {                                       \
    detail::wgmma<n, (a_type >= TL_S8)>(d, nullptr, a, b, a_type | b_type << 4 | f16_accumulator << 8, 0, scale_d); \
  }                                                                                                                 \
  template <int n>                                                                                                  \
  TL_DEVICE void name_rs(void* d, const void* a, uint64_t b, bool scale_d = true) {                                 \
    detail::wgmma<n, (a_type >= TL_S8)>(d, a, 0, b, a_type | b_type << 4 | f16_accumulator << 8, 0, scale_d);       \
  }
TL_WGMMA_K_MAJOR(wgmma_m64k8_f32_tf32, wgmma_m64k8_f32_tf32_rs, TL_TF32, TL_TF32, 0)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f32_e4m3, wgmma_m64k32_f32_e4m3_rs, TL_E4M3, TL_E4M3, 0)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f32_e5m2, wgmma_m64k32_f32_e5m2_rs, TL_E5M2, TL_E5M2, 0)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f32_e4m3_e5m2, wgmma_m64k32_f32_e4m3_e5m2_rs, TL_E4M3, TL_E5M2, 0)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f32_e5m2_e4m3, wgmma_m64k32_f32_e5m2_e4m3_rs, TL_E5M2, TL_E4M3, 0)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f16_e4m3, wgmma_m64k32_f16_e4m3_rs, TL_E4M3, TL_E4M3, 1)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f16_e5m2, wgmma_m64k32_f16_e5m2_rs, TL_E5M2, TL_E5M2, 1)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f16_e4m3_e5m2, wgmma_m64k32_f16_e4m3_e5m2_rs, TL_E4M3, TL_E5M2, 1)
TL_WGMMA_K_MAJOR(wgmma_m64k32_f16_e5m2_e4m3, wgmma_m64k32_f16_e5m2_e4m3_rs, TL_E5M2, TL_E4M3, 1)
TL_WGMMA_K_MAJOR(wgmma_m64k32_s32_s8, wgmma_m64k32_s32_s8_rs, TL_S8, TL_S8, 0)
TL_WGMMA_K_MAJOR(wgmma_m64k32_s32_u8, wgmma_m64k32_s32_u8_rs, TL_U8, TL_U8, 0)
TL_WGMMA_K_MAJOR(wgmma_m64k32_s32_s8_u8, wgmma_m64k32_s32_s8_u8_rs, TL_S8, TL_U8, 0)
TL_WGMMA_K_MAJOR(wgmma_m64k32_s32_u8_s8, wgmma_m64k32_s32_u8_s8_rs, TL_U8, TL_S8, 0)
#undef TL_WGMMA_K_MAJOR

}  // namespace tl
