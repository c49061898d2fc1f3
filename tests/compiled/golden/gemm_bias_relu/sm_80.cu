#include "tl_cuda.cuh"

extern "C" __global__ void __launch_bounds__(128) main_kernel(
    const tl::half_t *__restrict__ A,
    const tl::half_t *__restrict__ B,
    const tl::half_t *__restrict__ bias,
    tl::half_t *__restrict__ C) {
  const int bx = blockIdx.x;
  const int by = blockIdx.y;
  const int tx = threadIdx.x;
  tl::half_t *A_tile = (tl::half_t *)tl::shared_memory();
  tl::half_t *B_tile = (tl::half_t *)(tl::shared_memory() + 24576);
  tl::half_t *bias_tile = (tl::half_t *)(tl::shared_memory() + 49152);
  alignas(16) float acc[128];
  // T.copy (line 13)
  bias_tile[tx] = bias[bx * 128 + tx];
  // T.fill (line 14)
  #pragma unroll
  for (int c = 0; c < 128; ++c) {
    acc[c] = 0.0f;
  }
  // T.copy (line 16)
  const int A_tile_place = tx * 8;
  const int A_tile_at = A_tile_place ^ ((A_tile_place >> 3) & 24);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    tl::cp_async<16>(&A_tile[A_tile_at + c * 1024], &A[(by * 128 + c * 32 + tx / 4) * 4096 + (tx % 4) * 8]);
  }
  // T.copy (line 17)
  const int B_tile_place = ((tx % 16) >> 3) * 2048 + (tx / 16) * 64 + (tx % 8) * 8;
  const int B_tile_at = B_tile_place ^ ((B_tile_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    tl::cp_async<16>(&B_tile[B_tile_at + c * 512], &B[(c * 8 + tx / 16) * 4096 + bx * 128 + (tx % 16) * 8]);
  }
  tl::cp_async_commit();
  // T.copy (line 16)
  const int A_tile_place_1 = tx * 8;
  const int A_tile_at_1 = A_tile_place_1 ^ ((A_tile_place_1 >> 3) & 24);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    tl::cp_async<16>(
        &A_tile[A_tile_at_1 + c * 1024 + 4096],
        &A[(by * 128 + c * 32 + tx / 4) * 4096 + (tx % 4) * 8 + 32]);
  }
  // T.copy (line 17)
  const int B_tile_place_1 = ((tx % 16) >> 3) * 2048 + (tx / 16) * 64 + (tx % 8) * 8;
  const int B_tile_at_1 = B_tile_place_1 ^ ((B_tile_place_1 >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    tl::cp_async<16>(
        &B_tile[B_tile_at_1 + c * 512 + 4096],
        &B[(c * 8 + tx / 16 + 32) * 4096 + bx * 128 + (tx % 16) * 8]);
  }
  tl::cp_async_commit();
  for (int k = 0; k < 128; ++k) {
    tl::cp_async_wait<1>();
    tl::sync_threads();
    if (k + 2 < 128) {
      // T.copy (line 16)
      const int A_tile_place_2 = tx * 8;
      const int A_tile_at_2 = A_tile_place_2 ^ ((A_tile_place_2 >> 3) & 24);
      #pragma unroll
      for (int c = 0; c < 4; ++c) {
        tl::cp_async<16>(
            &A_tile[A_tile_at_2 + ((k + 2) % 3) * 4096 + c * 1024],
            &A[(by * 128 + c * 32 + tx / 4) * 4096 + k * 32 + (tx % 4) * 8 + 64]);
      }
      // T.copy (line 17)
      const int B_tile_place_2 = ((tx % 16) >> 3) * 2048 + (tx / 16) * 64 + (tx % 8) * 8;
      const int B_tile_at_2 = B_tile_place_2 ^ ((B_tile_place_2 >> 3) & 56);
      #pragma unroll
      for (int c = 0; c < 4; ++c) {
        tl::cp_async<16>(
            &B_tile[B_tile_at_2 + ((k + 2) % 3) * 4096 + c * 512],
            &B[(k * 32 + c * 8 + tx / 16 + 64) * 4096 + bx * 128 + (tx % 16) * 8]);
      }
    }
    tl::cp_async_commit();
    alignas(16) tl::half_t A_tile_frag[32];
    alignas(16) tl::half_t B_tile_frag[32];
    // T.gemm (line 18)
    const int A_tile_place_2 = ((tx % 64) >> 5) * 2048 + (tx % 16) * 32 + ((tx % 32) >> 4) * 8;
    const int A_tile_at_2 = A_tile_place_2 ^ ((A_tile_place_2 >> 3) & 24);
    const int B_tile_place_2 = (tx / 64) * 2048 + (tx % 16) * 64 + ((tx % 32) >> 4) * 8;
    const int B_tile_at_2 = B_tile_place_2 ^ ((B_tile_place_2 >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 2; ++ki) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        tl::ldmatrix_x4(&A_tile_frag[j * 8], &A_tile[(A_tile_at_2 ^ (ki * 16)) + (k % 3) * 4096 + j * 512]);
      }
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        tl::ldmatrix_x4_trans(&B_tile_frag[j * 8], &B_tile[(B_tile_at_2 ^ (j * 16)) + (k % 3) * 4096 + ki * 1024]);
      }
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          tl::mma_m16n8k16_f32_f16(&acc[(i * 8 + j) * 4], &A_tile_frag[i * 8], &B_tile_frag[j * 4]);
        }
      }
    }
  }
  // T.Parallel (line 19)
  #pragma unroll
  for (int c = 0; c < 64; ++c) {
    alignas(4) tl::half_t bias_tile_part[2];
    *(tl::vec<tl::half_t, 2> *)bias_tile_part =
        *(const tl::vec<tl::half_t, 2> *)&bias_tile[(tx / 64) * 64 + ((c & 15) >> 1) * 8 + (tx % 4) * 2];
    #pragma unroll
    for (int u = 0; u < 2; ++u) {
      acc[c * 2 + u] = fmaxf(acc[c * 2 + u] + (float)bias_tile_part[u], 0.0f);
    }
  }
  alignas(16) tl::half_t C_part[8];
  // T.copy (line 21)
  #pragma unroll
  for (int g = 0; g < 16; ++g) {
    #pragma unroll
    for (int u = 0; u < 8; ++u) {
      C_part[u] = tl::half_t(acc[g * 8 + u]);
    }
    tl::transpose_quad(C_part);
    *(tl::vec<tl::half_t, 8> *)&C[(by * 128 + ((tx % 64) >> 5) * 64 + (g >> 2) * 16 + (tx % 2) * 8 + ((tx % 32) >> 2)) * 4096 + bx * 128 + (tx / 64) * 64 + (g & 3) * 16 + ((tx % 4) >> 1) * 8] =
        *(const tl::vec<tl::half_t, 8> *)C_part;
  }
}
