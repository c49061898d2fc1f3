// MFMA ("AMD Instinct MI300" CDNA3 ISA, "Matrix Arithmetic Instructions"), for waves of 64 lanes.
//
// The lanes are 64 / m groups g of m lanes i. With e elements of a and of b in a lane,
//   a: element j of lane (g, i) is row i, column e * g + j          (b: the same with rows and columns exchanged)
//   d: element v of lane (g, i) is row s * (64 / m) * (v / s) + s * g + v % s, column i; s is 4, or 1 for f64
// With several blocks each group has matrices of its own, and d's element v is row v.
// Products of narrow floats are exact in float; they are added in the order of k, each sum rounded to nearest even. The
// ISA leaves the order open, and how xf32 drops the lower 13 bits: here it rounds to nearest even.
#include "launch.h"
#include "state.h"

namespace emu {

constexpr int kWave = 64;

static float without_subnormal(float x, float least) { return __builtin_fabsf(x) < least ? __builtin_copysignf(0, x) : x; }
static u32 without_subnormal(u32 x, u32) { return x; }

static double without_subnormal(double x, double) { return x; }

static double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
static float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static u32 fused(u32 a, u32 b, u32 c) { return a * b + c; }

constexpr float kLeastNormal = 0x1p-126f, kLeastNormalHalf = 0x1p-14f;

// Element j of a lane's operand.
template <class Number>
static Number element_of(const void* operand, int j, tl_emu_element type) {
  int per_register = 32 / bits_of(type);
  return decode<Number>((const u32*)operand, j / per_register, j % per_register, type);
}
template <>
double element_of<double>(const void* operand, int j, tl_emu_element) {
  double x;
  memcpy(&x, (const u8*)operand + 8 * j, 8);
  return x;
}

// `flush`: subnormal operands and results count as zero.
template <class Number, int rows>
static void multiply_wave(MmaOperands* const* lanes, tl_emu_element a_type, tl_emu_element b_type, int depth, int blocks, bool flush) {
  constexpr int groups = kWave / rows, results = rows == 4 ? 4 : rows * rows / kWave;
  const int each = blocks > 1 ? depth : depth / groups, side_by_side = a_type == TL_F64 ? 1 : 4;
  const Number least = (Number)(a_type == TL_F16 ? kLeastNormalHalf : kLeastNormal);
  Number a[kWave][rows], b[kWave][rows];  // by column e * g + j of a, then by row; of b the other way around
  for (int lane = 0; lane < kWave; ++lane) {
    int g = lane / rows, i = lane % rows;
    for (int j = 0; j < each; ++j) {
      Number x = element_of<Number>(lanes[lane]->a, j, a_type);
      Number y = element_of<Number>(lanes[lane]->b, j, b_type);
      a[each * g + j][i] = flush ? without_subnormal(x, least) : x;
      b[each * g + j][i] = flush ? without_subnormal(y, least) : y;
    }
  }
  for (int block = 0; block < blocks; ++block) {
    Number d[rows][rows];
    auto place = [&](int lane, int v) -> Number* {
      int s = side_by_side;
      return &d[blocks > 1 ? v : s * groups * (v / s) + s * (lane / rows) + v % s][lane % rows];
    };
    auto each_result = [&](auto visit) {
      for (int lane = 0; lane < kWave; ++lane) {
        if (blocks > 1 && lane / rows != block) continue;
        for (int v = 0; v < results; ++v) visit((Number*)lanes[lane]->c + v, place(lane, v));
      }
    };
    each_result([&](const Number* own, Number* in_matrix) {
      memcpy(in_matrix, own, sizeof(Number));
      if (flush) *in_matrix = without_subnormal(*in_matrix, (Number)kLeastNormal);
    });
    for (int row = 0; row < rows; ++row) {
      Number sum[rows];
      for (int n = 0; n < rows; ++n) sum[n] = d[row][n];
      for (int k = block * depth; k < (block + 1) * depth; ++k) {
        for (int n = 0; n < rows; ++n) sum[n] = fused(a[k][row], b[k][n], sum[n]);
      }
      for (int n = 0; n < rows; ++n) d[row][n] = flush ? without_subnormal(sum[n], (Number)kLeastNormal) : sum[n];
    }
    each_result([](Number* own, const Number* in_matrix) { memcpy(own, in_matrix, sizeof(Number)); });
  }
}

template <class Number>
static void multiply_wave(MmaOperands* const* lanes, int rows, int depth, int blocks, tl_emu_element a, tl_emu_element b, bool flush) {
  if (rows == 32) multiply_wave<Number, 32>(lanes, a, b, depth, blocks, flush);
  else if (rows == 16) multiply_wave<Number, 16>(lanes, a, b, depth, blocks, flush);
  else multiply_wave<Number, 4>(lanes, a, b, depth, blocks, flush);
}

}  // namespace emu

using namespace emu;

extern "C" void tl_emu_mfma(void* c, const void* a, const void* b, int rows, int depth, int blocks, int a_type, int b_type,
                            int flush) {
  MmaOperands own{c, a, b};
  const void* pc = TL_EMU_PC;
  // A block whose last wave is not full has lanes without values: the instruction reads them all the same.
  if (warps[current->warp].all != ~0ull) fail(kPartialWave, pc);
  if (!meet(kMma, &own, pc)) return;
  ++counters.mma;
  MmaOperands* operands[kWave];
  for (int lane = 0; lane < kWave; ++lane) operands[lane] = (MmaOperands*)lanes_of_warp()[lane].operands;
  tl_emu_element left = (tl_emu_element)a_type, right = (tl_emu_element)b_type;
  if (left == TL_F64) multiply_wave<double, 16>(operands, left, right, depth, blocks, false);
  else if (left < TL_S8) multiply_wave<float>(operands, rows, depth, blocks, left, right, flush);
  else multiply_wave<u32>(operands, rows, depth, blocks, left, right, false);
}
