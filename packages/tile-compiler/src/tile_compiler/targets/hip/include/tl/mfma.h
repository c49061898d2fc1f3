// Matrix instructions of a wave: C (m, n) += A (m, k) @ B (k, n), named mfma_<m>x<n>x<k>_<type of C>_<type of A>[_<of B>].
//
// Each lane brings its part of the operands; the declarations in targets/hip/instructions say which part
// ("CDNA3 ISA" and "MI200 ISA", "Matrix Arithmetic Instructions").
#pragma once

namespace tl {
namespace detail {

typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x16 __attribute__((ext_vector_type(16)));
typedef int i32x4 __attribute__((ext_vector_type(4)));
typedef int i32x16 __attribute__((ext_vector_type(16)));
typedef double f64x4 __attribute__((ext_vector_type(4)));
typedef float f32x2 __attribute__((ext_vector_type(2)));
typedef _Float16 f16x4 __attribute__((ext_vector_type(4)));
typedef short i16x4 __attribute__((ext_vector_type(4)));

// A lane's part of an operand, in memory that is aligned to its elements only.
template <class T>
TL_DEVICE T part(const void* registers) {
  T value;
  __builtin_memcpy(&value, registers, sizeof(T));
  return value;
}

}  // namespace detail

#define TL_MFMA(name, builtin, accumulator, operand)                                                     \
  TL_DEVICE void name(void* c, const void* a, const void* b) {                                           \
    using namespace detail;                                                                              \
    accumulator sum = builtin(part<operand>(a), part<operand>(b), part<accumulator>(c), 0, 0, 0);        \
    __builtin_memcpy(c, &sum, sizeof(sum));                                                              \
  }
TL_MFMA(mfma_16x16x16_f32_f16, __builtin_amdgcn_mfma_f32_16x16x16f16, f32x4, f16x4)
TL_MFMA(mfma_32x32x8_f32_f16, __builtin_amdgcn_mfma_f32_32x32x8f16, f32x16, f16x4)
TL_MFMA(mfma_16x16x16_f32_bf16, __builtin_amdgcn_mfma_f32_16x16x16bf16_1k, f32x4, i16x4)
TL_MFMA(mfma_32x32x8_f32_bf16, __builtin_amdgcn_mfma_f32_32x32x8bf16_1k, f32x16, i16x4)
TL_MFMA(mfma_16x16x4_f32_f32, __builtin_amdgcn_mfma_f32_16x16x4f32, f32x4, float)
TL_MFMA(mfma_32x32x2_f32_f32, __builtin_amdgcn_mfma_f32_32x32x2f32, f32x16, float)
TL_MFMA(mfma_16x16x4_f64_f64, __builtin_amdgcn_mfma_f64_16x16x4f64, f64x4, double)
#if TL_GFX942
TL_MFMA(mfma_16x16x32_i32_i8, __builtin_amdgcn_mfma_i32_16x16x32_i8, i32x4, long)
TL_MFMA(mfma_32x32x16_i32_i8, __builtin_amdgcn_mfma_i32_32x32x16_i8, i32x16, long)
TL_MFMA(mfma_16x16x8_f32_xf32, __builtin_amdgcn_mfma_f32_16x16x8_xf32, f32x4, f32x2)
TL_MFMA(mfma_32x32x4_f32_xf32, __builtin_amdgcn_mfma_f32_32x32x4_xf32, f32x16, f32x2)
TL_MFMA(mfma_16x16x32_f32_e4m3fnuz, __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8, f32x4, long)
TL_MFMA(mfma_16x16x32_f32_e4m3fnuz_e5m2fnuz, __builtin_amdgcn_mfma_f32_16x16x32_fp8_bf8, f32x4, long)
TL_MFMA(mfma_16x16x32_f32_e5m2fnuz_e4m3fnuz, __builtin_amdgcn_mfma_f32_16x16x32_bf8_fp8, f32x4, long)
TL_MFMA(mfma_16x16x32_f32_e5m2fnuz, __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8, f32x4, long)
TL_MFMA(mfma_32x32x16_f32_e4m3fnuz, __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8, f32x16, long)
TL_MFMA(mfma_32x32x16_f32_e4m3fnuz_e5m2fnuz, __builtin_amdgcn_mfma_f32_32x32x16_fp8_bf8, f32x16, long)
TL_MFMA(mfma_32x32x16_f32_e5m2fnuz_e4m3fnuz, __builtin_amdgcn_mfma_f32_32x32x16_bf8_fp8, f32x16, long)
TL_MFMA(mfma_32x32x16_f32_e5m2fnuz, __builtin_amdgcn_mfma_f32_32x32x16_bf8_bf8, f32x16, long)
#else
TL_MFMA(mfma_16x16x16_i32_i8, __builtin_amdgcn_mfma_i32_16x16x16i8, i32x4, int)
TL_MFMA(mfma_32x32x8_i32_i8, __builtin_amdgcn_mfma_i32_32x32x8i8, i32x16, int)
#endif
#undef TL_MFMA

}  // namespace tl
