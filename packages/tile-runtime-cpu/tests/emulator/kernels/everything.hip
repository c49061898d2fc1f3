#include "tl_hip.h"
// Calls each function of the HIP header once; it is compiled, never run.
extern "C" __global__ void __launch_bounds__(128) everything(const tl::half_t* A, float* C, int* I, tl::bfloat16_t* B, int n, double* D, long long* L) {
  unsigned char* s = tl::shared_memory();
  int t = threadIdx.x;
  tl::sync_threads();
  tl::sync_warp();
  uint32_t a[2] = {1, 2}, b[2] = {3, 4};
  float c[16] = {0};
  int ci[16] = {0};
  tl::mfma_32x32x8_f32_f16(c, a, b);
  tl::mfma_16x16x16_f32_f16(c, a, b);
  tl::mfma_32x32x8_f32_bf16(c, a, b);
  tl::mfma_16x16x16_f32_bf16(c, a, b);
  tl::mfma_32x32x2_f32_f32(c, a, b);
  tl::mfma_16x16x4_f32_f32(c, a, b);
  double cd[4] = {0, 0, 0, 0};
  tl::mfma_16x16x4_f64_f64(cd, a, b);
  tl::cp_async<16>(s + t * 16, A + t * 8, t < n);
  tl::cp_async_commit();
  tl::cp_async_wait<0>();
#if defined(__gfx90a__)
  tl::mfma_32x32x8_i32_i8(ci, a, b);
  tl::mfma_16x16x16_i32_i8(ci, a, b);
#endif
#if defined(__gfx942__)
  tl::load_to_lds<4>(s + t / 64 * 256, A + 2 * t);
  tl::wait_loads<0>();
  tl::mfma_32x32x16_i32_i8(ci, a, b);
  tl::mfma_16x16x32_i32_i8(ci, a, b);
  tl::mfma_32x32x4_f32_xf32(c, a, b);
  tl::mfma_16x16x8_f32_xf32(c, a, b);
  tl::mfma_32x32x16_f32_e4m3fnuz(c, a, b);
  tl::mfma_16x16x32_f32_e4m3fnuz(c, a, b);
  tl::mfma_32x32x16_f32_e5m2fnuz(c, a, b);
  tl::mfma_16x16x32_f32_e5m2fnuz(c, a, b);
  tl::mfma_32x32x16_f32_e4m3fnuz_e5m2fnuz(c, a, b);
  tl::mfma_16x16x32_f32_e4m3fnuz_e5m2fnuz(c, a, b);
  tl::mfma_32x32x16_f32_e5m2fnuz_e4m3fnuz(c, a, b);
  tl::mfma_16x16x32_f32_e5m2fnuz_e4m3fnuz(c, a, b);
#endif
  float x = tl::shfl_xor(c[0], 1) + tl::shfl_down(c[1], 2) + tl::shfl_idx(c[2], 3) + tl::shfl_up(c[3], 1) + (float)tl::shfl_xor(A[t], 4) + (float)tl::shfl_xor((double)c[0], 2);
  if (tl::vote_any(x > 0) && tl::vote_all(x < 3)) x += (float)tl::vote_ballot(x > 1);
  tl::atomic_add(C, x);
  tl::atomic_add(I, 1);
  tl::atomic_min(C, x);
  tl::atomic_max(I, 3);
  tl::atomic_and(I, 1);
  tl::atomic_or(I, 2);
  tl::atomic_xor(I, 3);
  tl::atomic_exchange(I, 4);
  tl::atomic_exchange(C, 4.f);
  tl::atomic_exchange(D, 4.0);
  tl::atomic_add(B, tl::bfloat16_t(x));
  tl::atomic_add((tl::half_t*)B, tl::half_t(x));
  tl::atomic_max(B, tl::bfloat16_t(x));
  tl::atomic_min((tl::half_t*)B, tl::half_t(x));
  tl::atomic_add(D, 1.0);
  tl::atomic_min(D, 2.0);
  tl::atomic_add(L, 3ll);
  tl::atomic_add_x2(C, c);
  tl::atomic_add_x4(C, c);
  tl::half_t h2[2] = {tl::half_t(x), tl::half_t(x)};
  tl::atomic_add_x2((tl::half_t*)B, h2);
  ci[0] = tl::dp4a(ci[0], ci[1], ci[2]);
  x += tl::fast::exp2(x) + tl::fast::exp(x) + tl::fast::tanh(x) + tl::fast::pow(x, x) + tl::fast::divide(x, x) + tl::fast::tan(x) + tl::fast::log(x) + tl::fast::rsqrt(x);
  I[1] = tl::to_integer<int8_t>(x) + tl::to_integer<int>(x) + (int)tl::to_integer<int64_t>(x) + tl::to_integer<uint8_t>((double)x) + ci[0];
  tl::half_t h = A[t];
  h = h * h + h;
  h += tl::half_t(2.0);
  h = h / h - h;
  tl::fp8_e4m3_t e(x);
  tl::fp8_e5m2_t f(h);
  tl::fp8_e4m3fnuz_t ef(x);
  tl::fp8_e5m2fnuz_t ff(h);
  tl::fp8_e8m0_t g(x);
  e = e + e;
  tl::vec<tl::half_t, 8> v = *(const tl::vec<tl::half_t, 8>*)(A + 8 * t);
  v[1] = v[0] * v[2];
  *(tl::vec<tl::half_t, 8>*)(s + 16 * t) = v;
  C[t] = x + (float)e + (float)f + (float)g + (float)ef + (float)ff + (float)h + (h < v[0] ? 1.0f : INFINITY) + c[3] + (float)cd[0];
  tl::print("%f %d\n", x, t);
  tl::device_assert(x > 0, 1);
}
