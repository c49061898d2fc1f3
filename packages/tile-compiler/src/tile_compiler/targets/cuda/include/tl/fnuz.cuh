// The fp8 types of AMD's matrix instructions, in software: fp8_e4m3fnuz_t (bias 8, largest 240) and fp8_e5m2fnuz_t (bias
// 16, largest 57344). No infinities and no negative zero: 0x80 is NaN ("CDNA3 ISA", "Data Types: FP8 and BF8"). The text
// is shared with the emulator's header, like types.cuh.
#pragma once

namespace tl {
namespace detail {

template <int mantissa, int bias>
struct fnuz_format : through_float<fnuz_format<mantissa, bias>, uint8_t> {
  static TL_DEVICE uint8_t encode(float x) {
    uint8_t code = float8_from_float<mantissa, bias, 0x7f, 0x80>(x);
    return code == 0x80 && x == x ? (uint8_t)0 : code;  // -0
  }
  static TL_DEVICE float decode(uint8_t x) {
    return x == 0x80 ? bits_float(0x7fffffffu) : float8_to_float<mantissa, bias>(x);
  }
};

}  // namespace detail

typedef detail::narrow_float<detail::fnuz_format<3, 8>> fp8_e4m3fnuz_t;
typedef detail::narrow_float<detail::fnuz_format<2, 16>> fp8_e5m2fnuz_t;

}  // namespace tl
