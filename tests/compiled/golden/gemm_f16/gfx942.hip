#include "tl_hip.h"

extern "C" __global__ void __launch_bounds__(128) main_kernel(
    const tl::half_t *__restrict__ A,
    const tl::half_t *__restrict__ B,
    tl::half_t *__restrict__ C) {
  const int block_x = blockIdx.x;
  const int block_y = blockIdx.y;
  const int tx = threadIdx.x;
  const int bx =
      ((block_y >> 3) & 1) == 0 ? ((block_y & 7) * 32 + block_x) >> 3 : 31 - (((block_y & 7) * 32 + block_x) >> 3);
  const int by = (block_y >> 3) * 8 + (((block_y & 7) * 32 + block_x) & 7);
  tl::half_t *A_shared = (tl::half_t *)tl::shared_memory();
  tl::half_t *B_shared = (tl::half_t *)(tl::shared_memory() + 24576);
  alignas(16) float C_local[128];
  // T.fill (line 8)
  #pragma unroll
  for (int c = 0; c < 128; ++c) {
    C_local[c] = 0.0f;
  }
  // T.copy (line 10)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &A_shared[c * 256 + (tx / 64) * 64 * 2],
        &A[(by * 128 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 4095) >> 5)) * 4096 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 31)]);
  }
  // T.copy (line 14)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &B_shared[c * 256 + (tx / 64) * 64 * 2],
        &B[((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 2047) >> 6) * 4096 + bx * 128 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 4095) >> 11) * 64 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 63)]);
  }
  // T.copy (line 10)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &A_shared[c * 256 + (tx / 64) * 64 * 2 + 4096],
        &A[(by * 128 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 4095) >> 5)) * 4096 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 31) + 32]);
  }
  // T.copy (line 14)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &B_shared[c * 256 + (tx / 64) * 64 * 2 + 4096],
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
      // T.copy (line 10)
      #pragma unroll
      for (int c = 0; c < 16; ++c) {
        tl::load_to_lds<4>(
            &A_shared[((k + 2) % 3) * 4096 + c * 256 + (tx / 64) * 64 * 2],
            &A[(by * 128 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 4095) >> 5)) * 4096 + k * 32 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 24)) & 31) + 64]);
      }
      // T.copy (line 14)
      #pragma unroll
      for (int c = 0; c < 16; ++c) {
        tl::load_to_lds<4>(
            &B_shared[((k + 2) % 3) * 4096 + c * 256 + (tx / 64) * 64 * 2],
            &B[(k * 32 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 2047) >> 6) + 64) * 4096 + bx * 128 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 4095) >> 11) * 64 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 63)]);
      }
    }
    alignas(16) tl::half_t A_shared_frag[8];
    alignas(16) tl::half_t B_shared_frag[16];
    // T.gemm (line 15)
    const int A_shared_place = (tx / 64) * 2048 + (tx % 32) * 32 + ((tx % 64) >> 5) * 4;
    const int A_shared_at = A_shared_place ^ ((A_shared_place >> 3) & 24);
    const int B_shared_place = ((tx % 64) >> 5) * 256 + tx % 32;
    const int B_shared_at = B_shared_place ^ ((B_shared_place >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 4; ++ki) {
      #pragma unroll
      for (int b = 0; b < 2; ++b) {
        *(tl::vec<tl::half_t, 4> *)&A_shared_frag[b * 4] =
            *(const tl::vec<tl::half_t, 4> *)&A_shared[(A_shared_at ^ (ki * 8)) + (k % 3) * 4096 + b * 1024];
      }
      #pragma unroll
      for (int b = 0; b < 4; ++b) {
        #pragma unroll
        for (int r = 0; r < 4; ++r) {
          B_shared_frag[b * 4 + r] =
              B_shared[(B_shared_at ^ (((r * 64 + (b & 1) * 32) ^ (((r * 64 + (b & 1) * 32) >> 3) & 56)) & 56)) + (((r * 64 + (b & 1) * 32) ^ (((r * 64 + (b & 1) * 32) >> 3) & 56)) & 192) + (k % 3) * 4096 + (b >> 1) * 2048 + ki * 512];
        }
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          tl::mfma_32x32x8_f32_f16(&C_local[(i * 4 + j) * 16], &B_shared_frag[j * 4], &A_shared_frag[i * 4]);
        }
      }
    }
  }
  // T.copy (line 16)
  #pragma unroll
  for (int c = 0; c < 32; ++c) {
    tl::vec<tl::half_t, 4> C_row;
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      C_row[lane] = tl::half_t(C_local[c * 4 + lane]);
    }
    *(tl::vec<tl::half_t, 4> *)&C[(by * 128 + (tx / 64) * 64 + (c >> 4) * 32 + tx % 32) * 4096 + bx * 128 + (c & 15) * 8 + ((tx % 64) >> 5) * 4] =
        C_row;
  }
}
