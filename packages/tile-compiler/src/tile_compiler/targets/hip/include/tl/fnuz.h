// The fp8 types of CDNA3's matrix instructions: fp8_e4m3fnuz_t (bias 8, largest 240) and fp8_e5m2fnuz_t (bias 16, largest
// 57344). They have no infinities and no negative zero: 0x80 is NaN ("CDNA3 ISA", "Data Types: FP8 and BF8").
#pragma once

namespace tl {
namespace detail {

template <int mantissa, int bias>
TL_DEVICE uint8_t fnuz_from_float(float x) {
  uint8_t r = float8_from_float<mantissa, bias, 0x7f, 0x80>(x);
  return (r & 0x7fu) ? r : (uint8_t)(x != x ? 0x80u : 0u);
}

template <int mantissa, int bias>
TL_DEVICE float fnuz_to_float(uint8_t x) {
  return x == 0x80u ? bits_float(0x7fffffffu) : float8_to_float<mantissa, bias>(x);
}

#if TL_GFX942
// Finite numbers beyond the largest become NaN in the instruction, hence the clamp ("CDNA3 ISA", V_CVT_PK_FP8_F32).
TL_DEVICE float clamped(float x, float largest) { return x != x ? x : __builtin_amdgcn_fmed3f(x, -largest, largest); }
#endif

struct e4m3fnuz_format : through_float<e4m3fnuz_format, uint8_t> {
#if TL_GFX942
  static TL_DEVICE uint8_t encode(float x) {
    return (uint8_t)__builtin_amdgcn_cvt_pk_fp8_f32(clamped(x, 240.0f), 0.0f, 0, false);
  }
  static TL_DEVICE float decode(uint8_t x) { return __builtin_amdgcn_cvt_f32_fp8(x, 0); }
#else
  static TL_DEVICE uint8_t encode(float x) { return fnuz_from_float<3, 8>(x); }
  static TL_DEVICE float decode(uint8_t x) { return fnuz_to_float<3, 8>(x); }
#endif
};

struct e5m2fnuz_format : through_float<e5m2fnuz_format, uint8_t> {
#if TL_GFX942
  static TL_DEVICE uint8_t encode(float x) {
    return (uint8_t)__builtin_amdgcn_cvt_pk_bf8_f32(clamped(x, 57344.0f), 0.0f, 0, false);
  }
  static TL_DEVICE float decode(uint8_t x) { return __builtin_amdgcn_cvt_f32_bf8(x, 0); }
#else
  static TL_DEVICE uint8_t encode(float x) { return fnuz_from_float<2, 16>(x); }
  static TL_DEVICE float decode(uint8_t x) { return fnuz_to_float<2, 16>(x); }
#endif
};

}  // namespace detail

typedef detail::narrow_float<detail::e4m3fnuz_format> fp8_e4m3fnuz_t;
typedef detail::narrow_float<detail::e5m2fnuz_format> fp8_e5m2fnuz_t;

}  // namespace tl
