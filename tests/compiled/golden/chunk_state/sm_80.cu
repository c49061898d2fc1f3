#include "tl_cuda.cuh"

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
  alignas(16) tl::half_t x_weighted[32];
  alignas(16) tl::half_t dt_tile[8];
  alignas(16) float s_tile[8];
  float weight[8];
  alignas(16) float acc[32];
  const float s_end = dA_cumsum[(by >> 4) * 327680 + head * 4096 + (by & 15) * 256 + 255];
  // T.fill (line 22)
  #pragma unroll
  for (int c = 0; c < 32; ++c) {
    acc[c] = 0.0f;
  }
  // T.copy (line 25)
  const int x_tile_place = tx * 8;
  const int x_tile_at = x_tile_place ^ ((x_tile_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    tl::cp_async<16>(
        &x_tile[x_tile_at + c * 1024],
        &x[(by >> 4) * 20971520 + ((by & 15) * 256 + c * 16 + tx / 8) * 5120 + head * 64 + (tx % 8) * 8]);
  }
  // T.copy (line 26)
  const int B_tile_place = tx * 8;
  const int B_tile_at = B_tile_place ^ ((B_tile_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    tl::cp_async<16>(
        &B_tile[B_tile_at + c * 1024],
        &B[(by >> 4) * 524288 + ((by & 15) * 256 + c * 16 + tx / 8) * 128 + bx * 64 + (tx % 8) * 8]);
  }
  tl::cp_async_commit();
  for (int k = 0; k < 8; ++k) {
    tl::cp_async_wait<0>();
    tl::sync_threads();
    if (k + 1 < 8) {
      // T.copy (line 25)
      const int x_tile_place_1 = tx * 8;
      const int x_tile_at_1 = x_tile_place_1 ^ ((x_tile_place_1 >> 3) & 56);
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        tl::cp_async<16>(
            &x_tile[x_tile_at_1 + ((k + 1) & 1) * 2048 + c * 1024],
            &x[(by >> 4) * 20971520 + ((by & 15) * 256 + k * 32 + c * 16 + tx / 8 + 32) * 5120 + head * 64 + (tx % 8) * 8]);
      }
      // T.copy (line 26)
      const int B_tile_place_1 = tx * 8;
      const int B_tile_at_1 = B_tile_place_1 ^ ((B_tile_place_1 >> 3) & 56);
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        tl::cp_async<16>(
            &B_tile[B_tile_at_1 + ((k + 1) & 1) * 2048 + c * 1024],
            &B[(by >> 4) * 524288 + ((by & 15) * 256 + k * 32 + c * 16 + tx / 8 + 32) * 128 + bx * 64 + (tx % 8) * 8]);
      }
    }
    tl::cp_async_commit();
    // T.copy (line 28)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      *(tl::vec<tl::half_t, 2> *)&dt_tile[c * 2] =
          *(const tl::vec<tl::half_t, 2> *)&dt[(by >> 4) * 327680 + head * 4096 + (by & 15) * 256 + k * 32 + c * 8 + (tx % 4) * 2];
    }
    // T.copy (line 29)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      *(tl::vec<float, 2> *)&s_tile[c * 2] =
          *(const tl::vec<float, 2> *)&dA_cumsum[(by >> 4) * 327680 + head * 4096 + (by & 15) * 256 + k * 32 + c * 8 + (tx % 4) * 2];
    }
    // T.Parallel (line 30)
    #pragma unroll
    for (int c = 0; c < 8; ++c) {
      weight[c] = expf(s_end - s_tile[c]) * (float)dt_tile[c];
    }
    // T.Parallel (line 32)
    const int x_tile_place_1 = (tx % 4) * 128 + ((tx % 64) >> 5) * 32 + ((tx % 32) >> 2);
    const int x_tile_at_1 = x_tile_place_1 ^ ((x_tile_place_1 >> 3) & 56);
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      const int i = ((tx % 64) >> 5) * 32 + (c >> 4) * 16 + ((c & 3) >> 1) * 8 + ((tx % 32) >> 2);
      x_weighted[c] =
          tl::half_t((float)x_tile[(x_tile_at_1 ^ ((((c & 1) * 64 + (c >> 4) * 16 + ((c & 3) >> 1) * 8) ^ ((((c & 1) * 64 + (c >> 4) * 16 + ((c & 3) >> 1) * 8) >> 3) & 56)) & 16)) + ((((c & 1) * 64 + (c >> 4) * 16 + ((c & 3) >> 1) * 8) ^ ((((c & 1) * 64 + (c >> 4) * 16 + ((c & 3) >> 1) * 8) >> 3) & 56)) & 72) + (k & 1) * 2048 + ((c & 15) >> 2) * 512] * weight[((c & 15) >> 2) * 2 + (c & 1)]);
    }
    alignas(16) tl::half_t B_tile_frag[16];
    // T.gemm (line 34)
    const int B_tile_place_1 = (tx % 16) * 64 + (tx / 64) * 32 + ((tx % 32) >> 4) * 8;
    const int B_tile_at_1 = B_tile_place_1 ^ ((B_tile_place_1 >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 2; ++ki) {
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        tl::ldmatrix_x4_trans(&B_tile_frag[j * 8], &B_tile[(B_tile_at_1 ^ (j * 16)) + (k & 1) * 2048 + ki * 1024]);
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          tl::mma_m16n8k16_f32_f16(&acc[(i * 4 + j) * 4], &x_weighted[(i * 2 + ki) * 8], &B_tile_frag[j * 4]);
        }
      }
    }
  }
  alignas(16) tl::half_t states_part[8];
  // T.copy (line 35)
  #pragma unroll
  for (int g = 0; g < 4; ++g) {
    #pragma unroll
    for (int u = 0; u < 8; ++u) {
      states_part[u] = tl::half_t(acc[g * 8 + u]);
    }
    tl::transpose_quad(states_part);
    *(tl::vec<tl::half_t, 8> *)&states[(by >> 4) * 10485760 + (by & 15) * 655360 + head * 8192 + (((tx % 64) >> 5) * 32 + (g >> 1) * 16 + (tx % 2) * 8 + ((tx % 32) >> 2)) * 128 + bx * 64 + (tx / 64) * 32 + (g & 1) * 16 + ((tx % 4) >> 1) * 8] =
        *(const tl::vec<tl::half_t, 8> *)states_part;
  }
}
