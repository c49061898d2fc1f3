// mma.sync (PTX ISA, "Matrix multiply-accumulate operation using mma instruction").
//
// One rule covers the fragments of all shapes m16n8kK and m8n8kK: with g = lane / 4, t = lane % 4, n elements per register,
//   a: element i of register j is row g + 8 * (j % 2), column K/2 * (j / 2) + n * t + i   (K if there are two registers)
//   b: element i of register j is row K/2 * j + n * t + i, column g                       (K if there is one)
//   c: element i is row g + 8 * (i / 2), column 2 * t + i % 2.
// With 8 rows there is no second half: register j of a is column 4 * n * j, c has two elements.
// Products of floats are exact in float here and summed in float in the order of k; chips sum in an order of their own.
#include <immintrin.h>

#include "launch.h"
#include "state.h"

namespace emu {

constexpr int kDepth = 64;

static int bits_of(tl_emu_element type) {
  switch (type) {
    case TL_F16: case TL_BF16: return 16;
    case TL_TF32: case TL_XF32: case TL_F32: return 32;
    case TL_F64: return 64;
    case TL_S4: case TL_U4: return 4;
    default: return 8;
  }
}

static float from_bits(u32 u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

// Of the fnuz forms: no infinities, and NaN in the place of the negative zero.
static float decode_float8_fnuz(u32 x, int mantissa, int bias) {
  if (x == 128) return __builtin_nanf("");
  u32 exponent = (x & 127) >> mantissa, fraction = x & ((1u << mantissa) - 1);
  float magnitude = __builtin_ldexpf((float)(exponent ? fraction | 1u << mantissa : fraction),
                                     (int)(exponent ? exponent : 1) - bias - mantissa);
  return x & 128 ? -magnitude : magnitude;
}

static float decode_float8(u32 x, int mantissa, int bias) {
  u32 exponent = (x & 127) >> mantissa, fraction = x & ((1u << mantissa) - 1);
  bool top = exponent == (1u << (7 - mantissa)) - 1;
  float magnitude;
  if (mantissa == 2 && top) magnitude = fraction ? __builtin_nanf("") : __builtin_inff();
  else if (mantissa == 3 && (x & 127) == 127) magnitude = __builtin_nanf("");
  else if (exponent == 0) magnitude = __builtin_ldexpf((float)fraction, 1 - bias - mantissa);
  else magnitude = __builtin_ldexpf((float)(fraction | 1u << mantissa), (int)exponent - bias - mantissa);
  return x & 128 ? -magnitude : magnitude;
}

struct Float8Tables {
  float e4m3[256], e5m2[256], e4m3_fnuz[256], e5m2_fnuz[256];
  Float8Tables() {
    for (u32 i = 0; i < 256; ++i) {
      e4m3[i] = decode_float8(i, 3, 7);
      e5m2[i] = decode_float8(i, 2, 15);
      e4m3_fnuz[i] = decode_float8_fnuz(i, 3, 8);
      e5m2_fnuz[i] = decode_float8_fnuz(i, 2, 16);
    }
  }
};
static const Float8Tables float8;

// A float whose mantissa has 10 bits, to nearest even.
static float round_to_xf32(u32 bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return from_bits(bits);
  return from_bits((bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu);
}

template <class Number>
static Number decode(const u32* registers, int j, int i, tl_emu_element type) {
  u32 r = registers[j];
  switch (type) {
    case TL_F16: return (Number)_cvtsh_ss((uint16_t)(r >> 16 * i));
    case TL_BF16: return (Number)from_bits((r >> 16 * i) << 16);
    case TL_TF32: return (Number)from_bits(r & ~0x1fffu);  // the lower 13 bits are not read
    case TL_XF32: return (Number)round_to_xf32(r);
    case TL_F32: return (Number)from_bits(r);
    case TL_F64: break;  // runtime/mfma.cpp
    case TL_E4M3: return (Number)float8.e4m3[r >> 8 * i & 255];
    case TL_E5M2: return (Number)float8.e5m2[r >> 8 * i & 255];
    case TL_E4M3_FNUZ: return (Number)float8.e4m3_fnuz[r >> 8 * i & 255];
    case TL_E5M2_FNUZ: return (Number)float8.e5m2_fnuz[r >> 8 * i & 255];
    case TL_S8: return (Number)(int8_t)(r >> 8 * i);
    case TL_U8: return (Number)(r >> 8 * i & 255);
    case TL_S4: return (Number)((int)(r << (28 - 4 * i)) >> 28);
    case TL_U4: return (Number)(r >> 4 * i & 15);
  }
  return 0;
}

template <class Number>
static void multiply(MmaOperands* const* lanes, tl_emu_element a_type, tl_emu_element b_type, int depth, int form) {
  Number a[16][kDepth], b[kDepth][8], c[16][8];
  int per_a = 32 / bits_of(a_type), per_b = 32 / bits_of(b_type);
  // A register of the warp covers 4 lanes times `per` columns; fewer columns than K: a second register follows.
  int halves = depth / (4 * per_a);
  int high = form == TL_MMA_8_ROWS ? 1 : 2;  // groups of 8 rows
  bool f16 = form == TL_MMA_F16;
  for (int lane = 0; lane < 32; ++lane) {
    int g = lane / 4, t = lane % 4;
    for (int j = 0; j < high * halves; ++j) {
      for (int i = 0; i < per_a; ++i) {
        a[g + 8 * (j % high)][j / high * 4 * per_a + per_a * t + i] = decode<Number>((const u32*)lanes[lane]->a, j, i, a_type);
      }
    }
    for (int j = 0; j < halves; ++j) {
      for (int i = 0; i < per_b; ++i) {
        b[j * 4 * per_b + per_b * t + i][g] = decode<Number>((const u32*)lanes[lane]->b, j, i, b_type);
      }
    }
    for (int i = 0; i < 2 * high; ++i) {
      Number value;
      if (f16) value = (Number)_cvtsh_ss(((const uint16_t*)lanes[lane]->c)[i]);
      else memcpy(&value, (const u8*)lanes[lane]->c + 4 * i, 4);
      c[g + 8 * (i / 2)][2 * t + i % 2] = value;
    }
  }
  for (int row = 0; row < 8 * high; ++row) {
    Number sum[8];
    for (int n = 0; n < 8; ++n) sum[n] = c[row][n];
    for (int k = 0; k < depth; ++k) {
      for (int n = 0; n < 8; ++n) sum[n] += a[row][k] * b[k][n];
    }
    for (int n = 0; n < 8; ++n) c[row][n] = sum[n];
  }
  for (int lane = 0; lane < 32; ++lane) {
    for (int i = 0; i < 2 * high; ++i) {
      Number value = c[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2];
      if (f16) ((uint16_t*)lanes[lane]->c)[i] = _cvtss_sh((float)value, 0);
      else memcpy((u8*)lanes[lane]->c + 4 * i, &value, 4);
    }
  }
}

void multiply_accumulate(MmaOperands* const* lanes, tl_emu_element a_type, tl_emu_element b_type, int depth, int form) {
  if (a_type < TL_S8) multiply<float>(lanes, a_type, b_type, depth, form);
  else multiply<u32>(lanes, a_type, b_type, depth, form);  // sums of s32 wrap; unsigned may
}

}  // namespace emu
