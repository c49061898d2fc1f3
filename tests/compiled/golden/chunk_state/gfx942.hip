#include "tl_hip.h"

extern "C" __global__ void __launch_bounds__(128) main_kernel(
    const tl::half_t *__restrict__ B,
    const tl::half_t *__restrict__ x,
    const tl::half_t *__restrict__ dt,
    const float *__restrict__ dA_cumsum,
    tl::half_t *__restrict__ states) {
  const int bx = blockIdx.x;
  const int by = blockIdx.y;
  const int head = blockIdx.z;
  const int tx = threadIdx.x;
  tl::half_t *B_tile = (tl::half_t *)tl::shared_memory();
  tl::half_t *x_tile = (tl::half_t *)(tl::shared_memory() + 8192);
  alignas(16) tl::half_t x_weighted[16];
  alignas(16) tl::half_t dt_tile[16];
  alignas(16) float s_tile[16];
  float weight[16];
  alignas(16) float acc[32];
  const float s_end = dA_cumsum[(by >> 4) * 327680 + head * 4096 + (by & 15) * 256 + 255];
  // T.fill (line 22)
  #pragma unroll
  for (int c = 0; c < 32; ++c) {
    acc[c] = 0.0f;
  }
  // T.copy (line 25)
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    tl::load_to_lds<4>(
        &x_tile[c * 256 + (tx / 64) * 64 * 2],
        &x[(by >> 4) * 20971520 + ((by & 15) * 256 + c * 4 + tx / 32) * 5120 + head * 64 + (tx % 32) * 2]);
  }
  // T.copy (line 26)
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    tl::load_to_lds<4>(
        &B_tile[c * 256 + (tx / 64) * 64 * 2],
        &B[(by >> 4) * 524288 + ((by & 15) * 256 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 2047) >> 6)) * 128 + bx * 64 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 63)]);
  }
  for (int k = 0; k < 8; ++k) {
    tl::wait_loads<0>();
    tl::sync_threads();
    if (k + 1 < 8) {
      // T.copy (line 25)
      #pragma unroll
      for (int c = 0; c < 8; ++c) {
        tl::load_to_lds<4>(
            &x_tile[((k + 1) & 1) * 2048 + c * 256 + (tx / 64) * 64 * 2],
            &x[(by >> 4) * 20971520 + ((by & 15) * 256 + k * 32 + c * 4 + tx / 32 + 32) * 5120 + head * 64 + (tx % 32) * 2]);
      }
      // T.copy (line 26)
      #pragma unroll
      for (int c = 0; c < 8; ++c) {
        tl::load_to_lds<4>(
            &B_tile[((k + 1) & 1) * 2048 + c * 256 + (tx / 64) * 64 * 2],
            &B[(by >> 4) * 524288 + ((by & 15) * 256 + k * 32 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 2047) >> 6) + 32) * 128 + bx * 64 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 63)]);
      }
    }
    // T.copy (line 28)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      *(tl::vec<tl::half_t, 4> *)&dt_tile[c * 4] =
          *(const tl::vec<tl::half_t, 4> *)&dt[(by >> 4) * 327680 + head * 4096 + (by & 15) * 256 + k * 32 + c * 8 + ((tx % 64) >> 5) * 4];
    }
    // T.copy (line 29)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      *(tl::vec<float, 4> *)&s_tile[c * 4] =
          *(const tl::vec<float, 4> *)&dA_cumsum[(by >> 4) * 327680 + head * 4096 + (by & 15) * 256 + k * 32 + c * 8 + ((tx % 64) >> 5) * 4];
    }
    // T.Parallel (line 30)
    #pragma unroll
    for (int c = 0; c < 16; ++c) {
      weight[c] = expf(s_end - s_tile[c]) * (float)dt_tile[c];
    }
    // T.Parallel (line 32)
    #pragma unroll
    for (int c = 0; c < 16; ++c) {
      x_weighted[c] =
          tl::half_t((float)x_tile[(k & 1) * 2048 + (c >> 2) * 512 + ((tx % 64) >> 5) * 256 + (c & 3) * 64 + (tx / 64) * 32 + tx % 32] * weight[c]);
    }
    alignas(16) tl::half_t B_tile_frag[8];
    // T.gemm (line 34)
    const int B_tile_place = ((tx % 64) >> 5) * 256 + tx % 32;
    const int B_tile_at = B_tile_place ^ ((B_tile_place >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 4; ++ki) {
      #pragma unroll
      for (int b = 0; b < 2; ++b) {
        #pragma unroll
        for (int r = 0; r < 4; ++r) {
          B_tile_frag[b * 4 + r] =
              B_tile[(B_tile_at ^ (((r * 64 + b * 32) ^ (((r * 64 + b * 32) >> 3) & 56)) & 56)) + (((r * 64 + b * 32) ^ (((r * 64 + b * 32) >> 3) & 56)) & 192) + (k & 1) * 2048 + ki * 512];
        }
      }
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        tl::mfma_32x32x8_f32_f16(&acc[j * 16], &B_tile_frag[j * 4], &x_weighted[ki * 4]);
      }
    }
  }
  // T.copy (line 35)
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    tl::vec<tl::half_t, 4> states_row;
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      states_row[lane] = tl::half_t(acc[c * 4 + lane]);
    }
    *(tl::vec<tl::half_t, 4> *)&states[(by >> 4) * 10485760 + (by & 15) * 655360 + head * 8192 + ((tx / 64) * 32 + tx % 32) * 128 + bx * 64 + c * 8 + ((tx % 64) >> 5) * 4] =
        states_row;
  }
}
