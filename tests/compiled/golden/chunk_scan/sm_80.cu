#include "tl_cuda.cuh"

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
  alignas(16) tl::half_t cb_weighted[32];
  float s_row[4];
  alignas(16) float s_column[8];
  alignas(16) tl::half_t dt_column[8];
  alignas(16) float acc[32];
  // T.copy (line 30)
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int i = ((tx % 64) >> 5) * 32 + c * 8 + ((tx % 32) >> 2);
    s_row[c] = dA_cumsum[(by >> 4) * 327680 + head * 4096 + (by & 15) * 256 + bx * 64 + i];
  }
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
  alignas(16) tl::half_t C_tile_frag[16];
  alignas(16) tl::half_t state_tile_frag[16];
  // T.gemm (line 33)
  const int C_tile_place_1 = ((tx % 64) >> 5) * 2048 + (tx % 16) * 64 + ((tx % 32) >> 4) * 8;
  const int C_tile_at_1 = C_tile_place_1 ^ ((C_tile_place_1 >> 3) & 56);
  const int state_tile_place_1 =
      (tx / 64) * 2048 + ((tx % 32) >> 4) * 512 + (tx % 8) * 64 + ((tx % 16) >> 3) * 8;
  const int state_tile_at_1 = state_tile_place_1 ^ ((state_tile_place_1 >> 3) & 56);
  #pragma unroll
  for (int r = 0; r < 32; ++r) {
    acc[r] = 0.0f;
  }
  tl::sync_threads();
  #pragma unroll
  for (int ki = 0; ki < 8; ++ki) {
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      tl::ldmatrix_x4(&C_tile_frag[j * 8], &C_tile[(C_tile_at_1 ^ ((ki & 3) * 16)) + (ki >> 2) * 4096 + j * 1024]);
    }
    #pragma unroll
    for (int j = 0; j < 2; ++j) {
      tl::ldmatrix_x4(
          &state_tile_frag[j * 8],
          &state_tile[(state_tile_at_1 ^ ((ki & 3) * 16)) + (ki >> 2) * 4096 + j * 1024]);
    }
    #pragma unroll
    for (int i = 0; i < 2; ++i) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        tl::mma_m16n8k16_f32_f16(&acc[(i * 4 + j) * 4], &C_tile_frag[i * 8], &state_tile_frag[j * 4]);
      }
    }
  }
  // T.Parallel (line 34)
  #pragma unroll
  for (int c = 0; c < 32; ++c) {
    acc[c] *= expf(s_row[(c >> 4) * 2 + ((c & 3) >> 1)]);
  }
  // T.copy (line 41)
  const int cb_tile_place = tx * 8;
  const int cb_tile_at = cb_tile_place ^ ((cb_tile_place >> 3) & 24);
  tl::sync_threads();
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    tl::cp_async<16>(
        &cb_tile[cb_tile_at + c * 1024],
        &cb[(by >> 4) * 1048576 + (by & 15) * 65536 + (bx * 64 + c * 32 + tx / 4) * 256 + (tx % 4) * 8]);
  }
  // T.copy (line 44)
  const int x_tile_place = tx * 8;
  const int x_tile_at = x_tile_place ^ ((x_tile_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    tl::cp_async<16>(
        &x_tile[x_tile_at + c * 1024],
        &x[(by >> 4) * 20971520 + ((by & 15) * 256 + c * 16 + tx / 8) * 5120 + head * 64 + (tx % 8) * 8]);
  }
  tl::cp_async_commit();
  for (int k = 0; k < bx * 2 + 2; ++k) {
    tl::cp_async_wait<0>();
    tl::sync_threads();
    if (k + 1 < bx * 2 + 2) {
      // T.copy (line 41)
      const int cb_tile_place_1 = tx * 8;
      const int cb_tile_at_1 = cb_tile_place_1 ^ ((cb_tile_place_1 >> 3) & 24);
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        tl::cp_async<16>(
            &cb_tile[cb_tile_at_1 + ((k + 1) & 1) * 2048 + c * 1024],
            &cb[(by >> 4) * 1048576 + (by & 15) * 65536 + (bx * 64 + c * 32 + tx / 4) * 256 + k * 32 + (tx % 4) * 8 + 32]);
      }
      // T.copy (line 44)
      const int x_tile_place_1 = tx * 8;
      const int x_tile_at_1 = x_tile_place_1 ^ ((x_tile_place_1 >> 3) & 56);
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        tl::cp_async<16>(
            &x_tile[x_tile_at_1 + ((k + 1) & 1) * 2048 + c * 1024],
            &x[(by >> 4) * 20971520 + ((by & 15) * 256 + k * 32 + c * 16 + tx / 8 + 32) * 5120 + head * 64 + (tx % 8) * 8]);
      }
    }
    tl::cp_async_commit();
    // T.copy (line 42)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      *(tl::vec<float, 2> *)&s_column[c * 2] =
          *(const tl::vec<float, 2> *)&dA_cumsum[(by >> 4) * 327680 + head * 4096 + (by & 15) * 256 + k * 32 + c * 8 + (tx % 4) * 2];
    }
    // T.copy (line 43)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      *(tl::vec<tl::half_t, 2> *)&dt_column[c * 2] =
          *(const tl::vec<tl::half_t, 2> *)&dt[(by >> 4) * 327680 + head * 4096 + (by & 15) * 256 + k * 32 + c * 8 + (tx % 4) * 2];
    }
    // T.Parallel (line 45)
    const int cb_tile_place_1 = ((tx % 64) >> 5) * 1024 + ((tx % 32) >> 2) * 32 + (tx % 4) * 2;
    const int cb_tile_at_1 = cb_tile_place_1 ^ ((cb_tile_place_1 >> 3) & 24);
    #pragma unroll
    for (int c = 0; c < 16; ++c) {
      const int i_1 = ((tx % 64) >> 5) * 32 + (c >> 3) * 16 + (c & 1) * 8 + ((tx % 32) >> 2);
      const int j_1 = ((c & 7) >> 1) * 8 + (tx % 4) * 2;
      alignas(4) tl::half_t cb_tile_part[2];
      *(tl::vec<tl::half_t, 2> *)cb_tile_part =
          *(const tl::vec<tl::half_t, 2> *)&cb_tile[(cb_tile_at_1 ^ (((c & 7) >> 1) * 8)) + (k & 1) * 2048 + (c >> 3) * 512 + (c & 1) * 256];
      #pragma unroll
      for (int u = 0; u < 2; ++u) {
        const float decayed =
            (float)cb_tile_part[u] * expf(s_row[(c >> 3) * 2 + (c & 1)] - s_column[((c & 7) >> 1) * 2 + u]) * (float)dt_column[((c & 7) >> 1) * 2 + u];
        cb_weighted[c * 2 + u] = tl::half_t(k * 32 + j_1 + u <= bx * 64 + i_1 ? decayed : 0.0f);
      }
    }
    alignas(16) tl::half_t x_tile_frag[16];
    // T.gemm (line 48)
    const int x_tile_place_1 = (tx % 16) * 64 + (tx / 64) * 32 + ((tx % 32) >> 4) * 8;
    const int x_tile_at_1 = x_tile_place_1 ^ ((x_tile_place_1 >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 2; ++ki) {
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        tl::ldmatrix_x4_trans(&x_tile_frag[j * 8], &x_tile[(x_tile_at_1 ^ (j * 16)) + (k & 1) * 2048 + ki * 1024]);
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          tl::mma_m16n8k16_f32_f16(&acc[(i * 4 + j) * 4], &cb_weighted[(i * 2 + ki) * 8], &x_tile_frag[j * 4]);
        }
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
  const int skip_tile_place_1 =
      ((tx % 64) >> 5) * 2048 + ((tx % 32) >> 2) * 64 + (tx / 64) * 32 + (tx % 4) * 2;
  const int skip_tile_at_1 = skip_tile_place_1 ^ ((skip_tile_place_1 >> 3) & 56);
  tl::sync_threads();
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    alignas(4) tl::half_t skip_tile_part[2];
    *(tl::vec<tl::half_t, 2> *)skip_tile_part =
        *(const tl::vec<tl::half_t, 2> *)&skip_tile[(skip_tile_at_1 ^ (((c & 7) >> 1) * 8)) + (c >> 3) * 1024 + (c & 1) * 512];
    #pragma unroll
    for (int u = 0; u < 2; ++u) {
      acc[c * 2 + u] += (float)(D[head] * skip_tile_part[u]);
    }
  }
  alignas(16) tl::half_t y_part[8];
  // T.copy (line 53)
  #pragma unroll
  for (int g = 0; g < 4; ++g) {
    #pragma unroll
    for (int u = 0; u < 8; ++u) {
      y_part[u] = tl::half_t(acc[g * 8 + u]);
    }
    tl::transpose_quad(y_part);
    *(tl::vec<tl::half_t, 8> *)&y[(by >> 4) * 20971520 + ((by & 15) * 256 + bx * 64 + ((tx % 64) >> 5) * 32 + (g >> 1) * 16 + (tx % 2) * 8 + ((tx % 32) >> 2)) * 5120 + head * 64 + (tx / 64) * 32 + (g & 1) * 16 + ((tx % 4) >> 1) * 8] =
        *(const tl::vec<tl::half_t, 8> *)y_part;
  }
}
