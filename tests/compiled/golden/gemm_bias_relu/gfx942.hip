#include "tl_hip.h"

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
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &A_tile[c * 256 + (tx / 64) * 64 * 2],
        &A[(by * 128 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 4095) >> 5)) * 4096 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 31)]);
  }
  // T.copy (line 17)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &B_tile[c * 256 + (tx / 64) * 64 * 2],
        &B[((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 2047) >> 6) * 4096 + bx * 128 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 4095) >> 11) * 64 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 63)]);
  }
  // T.copy (line 16)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &A_tile[c * 256 + (tx / 64) * 64 * 2 + 4096],
        &A[(by * 128 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 4095) >> 5)) * 4096 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 31) + 32]);
  }
  // T.copy (line 17)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &B_tile[c * 256 + (tx / 64) * 64 * 2 + 4096],
        &B[(((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 2047) >> 6) + 32) * 4096 + bx * 128 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 4095) >> 11) * 64 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 63)]);
  }
  for (int k = 0; k < 128; ++k) {
    if (k + 1 < 128) {
      tl::wait_loads<32>();
    } else {
      tl::wait_loads<0>();
    }
    tl::sync_threads();
    if (k + 2 < 128) {
      // T.copy (line 16)
      #pragma unroll
      for (int c = 0; c < 16; ++c) {
        tl::load_to_lds<4>(
            &A_tile[((k + 2) % 3) * 4096 + c * 256 + (tx / 64) * 64 * 2],
            &A[(by * 128 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 4095) >> 5)) * 4096 + k * 32 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 31) + 64]);
      }
      // T.copy (line 17)
      #pragma unroll
      for (int c = 0; c < 16; ++c) {
        tl::load_to_lds<4>(
            &B_tile[((k + 2) % 3) * 4096 + c * 256 + (tx / 64) * 64 * 2],
            &B[(k * 32 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 2047) >> 6) + 64) * 4096 + bx * 128 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 4095) >> 11) * 64 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 63)]);
      }
    }
    alignas(16) tl::half_t A_tile_frag[8];
    alignas(16) tl::half_t B_tile_frag[16];
    // T.gemm (line 18)
    const int A_tile_place = (tx / 64) * 2048 + (tx % 32) * 32 + ((tx % 64) >> 5) * 4;
    const int A_tile_at = A_tile_place ^ ((A_tile_place >> 3) & 24);
    const int B_tile_place = ((tx % 64) >> 5) * 256 + tx % 32;
    const int B_tile_at = B_tile_place ^ ((B_tile_place >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 4; ++ki) {
      #pragma unroll
      for (int b = 0; b < 2; ++b) {
        *(tl::vec<tl::half_t, 4> *)&A_tile_frag[b * 4] =
            *(const tl::vec<tl::half_t, 4> *)&A_tile[(A_tile_at ^ (ki * 8)) + (k % 3) * 4096 + b * 1024];
      }
      #pragma unroll
      for (int b = 0; b < 4; ++b) {
        #pragma unroll
        for (int r = 0; r < 4; ++r) {
          B_tile_frag[b * 4 + r] =
              B_tile[(B_tile_at ^ (((r * 64 + (b & 1) * 32) ^ (((r * 64 + (b & 1) * 32) >> 3) & 56)) & 56)) + (((r * 64 + (b & 1) * 32) ^ (((r * 64 + (b & 1) * 32) >> 3) & 56)) & 192) + (k % 3) * 4096 + (b >> 1) * 2048 + ki * 512];
        }
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          tl::mfma_32x32x8_f32_f16(&acc[(i * 4 + j) * 16], &B_tile_frag[j * 4], &A_tile_frag[i * 4]);
        }
      }
    }
  }
  // T.Parallel (line 19)
  #pragma unroll
  for (int c = 0; c < 32; ++c) {
    alignas(8) tl::half_t bias_tile_part[4];
    *(tl::vec<tl::half_t, 4> *)bias_tile_part =
        *(const tl::vec<tl::half_t, 4> *)&bias_tile[(c & 15) * 8 + ((tx % 64) >> 5) * 4];
    #pragma unroll
    for (int u = 0; u < 4; ++u) {
      acc[c * 4 + u] = fmaxf(acc[c * 4 + u] + (float)bias_tile_part[u], 0.0f);
    }
  }
  // T.copy (line 21)
  #pragma unroll
  for (int c = 0; c < 32; ++c) {
    tl::vec<tl::half_t, 4> C_row;
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      C_row[lane] = tl::half_t(acc[c * 4 + lane]);
    }
    *(tl::vec<tl::half_t, 4> *)&C[(by * 128 + (tx / 64) * 64 + (c >> 4) * 32 + tx % 32) * 4096 + bx * 128 + (c & 15) * 8 + ((tx % 64) >> 5) * 4] =
        C_row;
  }
}
