#include "tl_hip.h"

extern "C" __global__ void __launch_bounds__(128) main_kernel(
    const float *__restrict__ A,
    const float *__restrict__ B,
    float *__restrict__ C) {
  const int block_x = blockIdx.x;
  const int block_y = blockIdx.y;
  const int tx = threadIdx.x;
  const int bx =
      ((block_y >> 3) & 1) == 0 ? ((block_y & 7) * 32 + block_x) >> 3 : 31 - (((block_y & 7) * 32 + block_x) >> 3);
  const int by = (block_y >> 3) * 8 + (((block_y & 7) * 32 + block_x) & 7);
  float *A_shared = (float *)tl::shared_memory();
  float *B_shared = (float *)(tl::shared_memory() + 24576);
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
        &A_shared[c * 128 + (tx / 64) * 64],
        &A[(by * 128 + ((((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 12)) & 2047) >> 4)) * 4096 + (((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 12)) & 15)]);
  }
  // T.copy (line 14)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &B_shared[c * 128 + (tx / 64) * 64],
        &B[((((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 28)) & 511) >> 5) * 4096 + bx * 128 + ((((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 28)) & 2047) >> 9) * 32 + (((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 28)) & 31)]);
  }
  // T.copy (line 10)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &A_shared[c * 128 + (tx / 64) * 64 + 2048],
        &A[(by * 128 + ((((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 12)) & 2047) >> 4)) * 4096 + (((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 12)) & 15) + 16]);
  }
  // T.copy (line 14)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &B_shared[c * 128 + (tx / 64) * 64 + 2048],
        &B[(((((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 28)) & 511) >> 5) + 16) * 4096 + bx * 128 + ((((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 28)) & 2047) >> 9) * 32 + (((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 28)) & 31)]);
  }
  for (int k = 0; k < 256; ++k) {
    if (k + 1 < 256) {
      tl::wait_loads<32>();
    } else {
      tl::wait_loads<0>();
    }
    tl::sync_threads();
    if (k + 2 < 256) {
      // T.copy (line 10)
      #pragma unroll
      for (int c = 0; c < 16; ++c) {
        tl::load_to_lds<4>(
            &A_shared[((k + 2) % 3) * 2048 + c * 128 + (tx / 64) * 64],
            &A[(by * 128 + ((((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 12)) & 2047) >> 4)) * 4096 + k * 16 + (((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 12)) & 15) + 32]);
      }
      // T.copy (line 14)
      #pragma unroll
      for (int c = 0; c < 16; ++c) {
        tl::load_to_lds<4>(
            &B_shared[((k + 2) % 3) * 2048 + c * 128 + (tx / 64) * 64],
            &B[(k * 16 + ((((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 28)) & 511) >> 5) + 32) * 4096 + bx * 128 + ((((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 28)) & 2047) >> 9) * 32 + (((c * 128 + tx) ^ (((c * 128 + tx) >> 3) & 28)) & 31)]);
      }
    }
    alignas(16) float A_shared_frag[4];
    alignas(16) float B_shared_frag[8];
    // T.gemm (line 15)
    const int A_shared_place = (tx / 64) * 1024 + (tx % 32) * 16 + ((tx % 64) >> 5) * 2;
    const int A_shared_at = A_shared_place ^ ((A_shared_place >> 3) & 12);
    #pragma unroll
    for (int ki = 0; ki < 4; ++ki) {
      #pragma unroll
      for (int b = 0; b < 2; ++b) {
        *(tl::vec<float, 2> *)&A_shared_frag[b * 2] =
            *(const tl::vec<float, 2> *)&A_shared[(A_shared_at ^ (ki * 4)) + (k % 3) * 2048 + b * 512];
      }
      #pragma unroll
      for (int b = 0; b < 4; ++b) {
        #pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int B_shared_place =
              (k % 3) * 2048 + b * 512 + ki * 128 + ((tx % 64) >> 5) * 64 + r * 32 + tx % 32;
          B_shared_frag[b * 2 + r] = B_shared[B_shared_place ^ ((B_shared_place >> 3) & 28)];
        }
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          tl::mfma_32x32x4_f32_xf32(&C_local[(i * 4 + j) * 16], &B_shared_frag[j * 2], &A_shared_frag[i * 2]);
        }
      }
    }
  }
  // T.copy (line 16)
  #pragma unroll
  for (int c = 0; c < 32; ++c) {
    *(tl::vec<float, 4> *)&C[(by * 128 + (tx / 64) * 64 + (c >> 4) * 32 + tx % 32) * 4096 + bx * 128 + (c & 15) * 8 + ((tx % 64) >> 5) * 4] =
        *(const tl::vec<float, 4> *)&C_local[c * 4];
  }
}
