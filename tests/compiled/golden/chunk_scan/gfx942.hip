#include "tl_hip.h"

extern "C" __global__ void __launch_bounds__(128) main_kernel(
    const tl::half_t *__restrict__ cb,
    const tl::half_t *__restrict__ x,
    const tl::half_t *__restrict__ dt,
    const float *__restrict__ dA_cumsum,
    const tl::half_t *__restrict__ C,
    const tl::half_t *__restrict__ prev_states,
    const tl::half_t *__restrict__ D,
    tl::half_t *__restrict__ y) {
  const int block_bx = blockIdx.x;
  const int by = blockIdx.y;
  const int head = blockIdx.z;
  const int tx = threadIdx.x;
  const int bx = 3 - block_bx;
  tl::half_t *C_tile = (tl::half_t *)tl::shared_memory();
  tl::half_t *state_tile = (tl::half_t *)(tl::shared_memory() + 16384);
  tl::half_t *cb_tile = (tl::half_t *)tl::shared_memory();
  tl::half_t *x_tile = (tl::half_t *)(tl::shared_memory() + 8192);
  tl::half_t *skip_tile = (tl::half_t *)tl::shared_memory();
  alignas(16) tl::half_t cb_weighted[16];
  float s_row;
  alignas(16) float s_column[16];
  alignas(16) tl::half_t dt_column[16];
  alignas(16) float acc[32];
  // T.copy (line 30)
  const int i = (tx / 64) * 32 + tx % 32;
  s_row = dA_cumsum[(by >> 4) * 327680 + head * 4096 + (by & 15) * 256 + bx * 64 + i];
  // T.copy (line 31)
  const int C_tile_place = ((tx % 16) >> 3) * 4096 + (tx / 16) * 64 + (tx % 8) * 8;
  const int C_tile_at = C_tile_place ^ ((C_tile_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    *(tl::vec<tl::half_t, 8> *)&C_tile[C_tile_at + c * 512] =
        *(const tl::vec<tl::half_t, 8> *)&C[(by >> 4) * 524288 + ((by & 15) * 256 + bx * 64 + c * 8 + tx / 16) * 128 + (tx % 16) * 8];
  }
  // T.copy (line 32)
  const int state_tile_place = ((tx % 16) >> 3) * 4096 + (tx / 16) * 64 + (tx % 8) * 8;
  const int state_tile_at = state_tile_place ^ ((state_tile_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    *(tl::vec<tl::half_t, 8> *)&state_tile[state_tile_at + c * 512] =
        *(const tl::vec<tl::half_t, 8> *)&prev_states[(by >> 4) * 10485760 + (by & 15) * 655360 + head * 8192 + (c * 8 + tx / 16) * 128 + (tx % 16) * 8];
  }
  alignas(8) tl::half_t C_tile_frag[4];
  alignas(16) tl::half_t state_tile_frag[8];
  // T.gemm (line 33)
  const int C_tile_place_1 = (tx / 64) * 2048 + (tx % 32) * 64 + ((tx % 64) >> 5) * 4;
  const int C_tile_at_1 = C_tile_place_1 ^ ((C_tile_place_1 >> 3) & 56);
  const int state_tile_place_1 = (tx % 32) * 64 + ((tx % 64) >> 5) * 4;
  const int state_tile_at_1 = state_tile_place_1 ^ ((state_tile_place_1 >> 3) & 56);
  #pragma unroll
  for (int r = 0; r < 32; ++r) {
    acc[r] = 0.0f;
  }
  tl::sync_threads();
  #pragma unroll
  for (int ki = 0; ki < 16; ++ki) {
    *(tl::vec<tl::half_t, 4> *)C_tile_frag =
        *(const tl::vec<tl::half_t, 4> *)&C_tile[(C_tile_at_1 ^ ((ki & 7) * 8)) + (ki >> 3) * 4096];
    #pragma unroll
    for (int b = 0; b < 2; ++b) {
      *(tl::vec<tl::half_t, 4> *)&state_tile_frag[b * 4] =
          *(const tl::vec<tl::half_t, 4> *)&state_tile[(state_tile_at_1 ^ ((ki & 7) * 8)) + (ki >> 3) * 4096 + b * 2048];
    }
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      tl::mfma_32x32x8_f32_f16(&acc[j * 16], &state_tile_frag[j * 4], C_tile_frag);
    }
  }
  // T.Parallel (line 34)
  #pragma unroll
  for (int c = 0; c < 32; ++c) {
    acc[c] *= expf(s_row);
  }
  // T.copy (line 41)
  tl::sync_threads();
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    tl::load_to_lds<4>(
        &cb_tile[c * 256 + (tx / 64) * 64 * 2],
        &cb[(by >> 4) * 1048576 + (by & 15) * 65536 + (bx * 64 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 2047) >> 5)) * 256 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 31)]);
  }
  // T.copy (line 44)
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    tl::load_to_lds<4>(
        &x_tile[c * 256 + (tx / 64) * 64 * 2],
        &x[(by >> 4) * 20971520 + ((by & 15) * 256 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 2047) >> 6)) * 5120 + head * 64 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 63)]);
  }
  for (int k = 0; k < bx * 2 + 2; ++k) {
    tl::wait_loads<0>();
    tl::sync_threads();
    if (k + 1 < bx * 2 + 2) {
      // T.copy (line 41)
      #pragma unroll
      for (int c = 0; c < 8; ++c) {
        tl::load_to_lds<4>(
            &cb_tile[((k + 1) & 1) * 2048 + c * 256 + (tx / 64) * 64 * 2],
            &cb[(by >> 4) * 1048576 + (by & 15) * 65536 + (bx * 64 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 2047) >> 5)) * 256 + k * 32 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 31) + 32]);
      }
      // T.copy (line 44)
      #pragma unroll
      for (int c = 0; c < 8; ++c) {
        tl::load_to_lds<4>(
            &x_tile[((k + 1) & 1) * 2048 + c * 256 + (tx / 64) * 64 * 2],
            &x[(by >> 4) * 20971520 + ((by & 15) * 256 + k * 32 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 2047) >> 6) + 32) * 5120 + head * 64 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 63)]);
      }
    }
    // T.copy (line 42)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      *(tl::vec<float, 4> *)&s_column[c * 4] =
          *(const tl::vec<float, 4> *)&dA_cumsum[(by >> 4) * 327680 + head * 4096 + (by & 15) * 256 + k * 32 + c * 8 + ((tx % 64) >> 5) * 4];
    }
    // T.copy (line 43)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      *(tl::vec<tl::half_t, 4> *)&dt_column[c * 4] =
          *(const tl::vec<tl::half_t, 4> *)&dt[(by >> 4) * 327680 + head * 4096 + (by & 15) * 256 + k * 32 + c * 8 + ((tx % 64) >> 5) * 4];
    }
    // T.Parallel (line 45)
    const int cb_tile_place = (tx / 64) * 1024 + (tx % 32) * 32 + ((tx % 64) >> 5) * 4;
    const int cb_tile_at = cb_tile_place ^ ((cb_tile_place >> 3) & 24);
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int i_1 = (tx / 64) * 32 + tx % 32;
      const int j_1 = c * 8 + ((tx % 64) >> 5) * 4;
      alignas(8) tl::half_t cb_tile_part[4];
      *(tl::vec<tl::half_t, 4> *)cb_tile_part =
          *(const tl::vec<tl::half_t, 4> *)&cb_tile[(cb_tile_at ^ (c * 8)) + (k & 1) * 2048];
      #pragma unroll
      for (int u = 0; u < 4; ++u) {
        const float decayed =
            (float)cb_tile_part[u] * expf(s_row - s_column[c * 4 + u]) * (float)dt_column[c * 4 + u];
        cb_weighted[c * 4 + u] = tl::half_t(k * 32 + j_1 + u <= bx * 64 + i_1 ? decayed : 0.0f);
      }
    }
    alignas(16) tl::half_t x_tile_frag[8];
    // T.gemm (line 48)
    const int x_tile_place = ((tx % 64) >> 5) * 256 + tx % 32;
    const int x_tile_at = x_tile_place ^ ((x_tile_place >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 4; ++ki) {
      #pragma unroll
      for (int b = 0; b < 2; ++b) {
        #pragma unroll
        for (int r = 0; r < 4; ++r) {
          x_tile_frag[b * 4 + r] =
              x_tile[(x_tile_at ^ (((r * 64 + b * 32) ^ (((r * 64 + b * 32) >> 3) & 56)) & 56)) + (((r * 64 + b * 32) ^ (((r * 64 + b * 32) >> 3) & 56)) & 192) + (k & 1) * 2048 + ki * 512];
        }
      }
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        tl::mfma_32x32x8_f32_f16(&acc[j * 16], &x_tile_frag[j * 4], &cb_weighted[ki * 4]);
      }
    }
  }
  // T.copy (line 50)
  const int skip_tile_place = tx * 8;
  const int skip_tile_at = skip_tile_place ^ ((skip_tile_place >> 3) & 56);
  tl::sync_threads();
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    *(tl::vec<tl::half_t, 8> *)&skip_tile[skip_tile_at + c * 1024] =
        *(const tl::vec<tl::half_t, 8> *)&x[(by >> 4) * 20971520 + ((by & 15) * 256 + bx * 64 + c * 16 + tx / 8) * 5120 + head * 64 + (tx % 8) * 8];
  }
  // T.Parallel (line 51)
  const int skip_tile_place_1 = (tx / 64) * 2048 + (tx % 32) * 64 + ((tx % 64) >> 5) * 4;
  const int skip_tile_at_1 = skip_tile_place_1 ^ ((skip_tile_place_1 >> 3) & 56);
  tl::sync_threads();
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    alignas(8) tl::half_t skip_tile_part[4];
    *(tl::vec<tl::half_t, 4> *)skip_tile_part =
        *(const tl::vec<tl::half_t, 4> *)&skip_tile[skip_tile_at_1 ^ (c * 8)];
    #pragma unroll
    for (int u = 0; u < 4; ++u) {
      acc[c * 4 + u] += (float)(D[head] * skip_tile_part[u]);
    }
  }
  // T.copy (line 53)
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    tl::vec<tl::half_t, 4> y_row;
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      y_row[lane] = tl::half_t(acc[c * 4 + lane]);
    }
    *(tl::vec<tl::half_t, 4> *)&y[(by >> 4) * 20971520 + ((by & 15) * 256 + bx * 64 + (tx / 64) * 32 + tx % 32) * 5120 + head * 64 + c * 8 + ((tx % 64) >> 5) * 4] =
        y_row;
  }
}
