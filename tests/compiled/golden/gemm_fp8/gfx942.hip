#include "tl_hip.h"

extern "C" __global__ void __launch_bounds__(128) main_kernel(
    const tl::fp8_e4m3fnuz_t *__restrict__ A,
    const tl::fp8_e4m3fnuz_t *__restrict__ B,
    tl::fp8_e4m3fnuz_t *__restrict__ C) {
  const int block_x = blockIdx.x;
  const int block_y = blockIdx.y;
  const int tx = threadIdx.x;
  const int bx =
      ((block_y >> 3) & 1) == 0 ? ((block_y & 7) * 32 + block_x) >> 3 : 31 - (((block_y & 7) * 32 + block_x) >> 3);
  const int by = (block_y >> 3) * 8 + (((block_y & 7) * 32 + block_x) & 7);
  tl::fp8_e4m3fnuz_t *A_shared = (tl::fp8_e4m3fnuz_t *)tl::shared_memory();
  tl::fp8_e4m3fnuz_t *B_shared = (tl::fp8_e4m3fnuz_t *)(tl::shared_memory() + 24576);
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
        &A_shared[c * 512 + (tx / 64) * 64 * 4],
        &A[(by * 128 + ((((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 48)) & 8191) >> 6)) * 4096 + (((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 48)) & 63)]);
  }
  // T.copy (line 12)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &B_shared[c * 512 + (tx / 64) * 64 * 4],
        &B[(bx * 128 + ((((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 48)) & 8191) >> 6)) * 4096 + (((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 48)) & 63)]);
  }
  // T.copy (line 10)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &A_shared[c * 512 + (tx / 64) * 64 * 4 + 8192],
        &A[(by * 128 + ((((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 48)) & 8191) >> 6)) * 4096 + (((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 48)) & 63) + 64]);
  }
  // T.copy (line 12)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &B_shared[c * 512 + (tx / 64) * 64 * 4 + 8192],
        &B[(bx * 128 + ((((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 48)) & 8191) >> 6)) * 4096 + (((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 48)) & 63) + 64]);
  }
  for (int k = 0; k < 64; ++k) {
    if (k + 1 < 64) {
      tl::wait_loads<32>();
    } else {
      tl::wait_loads<0>();
    }
    tl::sync_threads();
    if (k + 2 < 64) {
      // T.copy (line 10)
      #pragma unroll
      for (int c = 0; c < 16; ++c) {
        tl::load_to_lds<4>(
            &A_shared[((k + 2) % 3) * 8192 + c * 512 + (tx / 64) * 64 * 4],
            &A[(by * 128 + ((((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 48)) & 8191) >> 6)) * 4096 + k * 64 + (((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 48)) & 63) + 128]);
      }
      // T.copy (line 12)
      #pragma unroll
      for (int c = 0; c < 16; ++c) {
        tl::load_to_lds<4>(
            &B_shared[((k + 2) % 3) * 8192 + c * 512 + (tx / 64) * 64 * 4],
            &B[(bx * 128 + ((((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 48)) & 8191) >> 6)) * 4096 + k * 64 + (((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 48)) & 63) + 128]);
      }
    }
    alignas(16) tl::fp8_e4m3fnuz_t A_shared_frag[16];
    alignas(16) tl::fp8_e4m3fnuz_t B_shared_frag[32];
    // T.gemm (line 15)
    const int A_shared_place = (tx / 64) * 4096 + (tx % 32) * 64 + ((tx % 64) >> 5) * 8;
    const int A_shared_at = A_shared_place ^ ((A_shared_place >> 3) & 48);
    const int B_shared_place = (tx % 32) * 64 + ((tx % 64) >> 5) * 8;
    const int B_shared_at = B_shared_place ^ ((B_shared_place >> 3) & 48);
    #pragma unroll
    for (int ki = 0; ki < 4; ++ki) {
      #pragma unroll
      for (int b = 0; b < 2; ++b) {
        *(tl::vec<tl::fp8_e4m3fnuz_t, 8> *)&A_shared_frag[b * 8] =
            *(const tl::vec<tl::fp8_e4m3fnuz_t, 8> *)&A_shared[(A_shared_at ^ (ki * 16)) + (k % 3) * 8192 + b * 2048];
      }
      #pragma unroll
      for (int b = 0; b < 4; ++b) {
        *(tl::vec<tl::fp8_e4m3fnuz_t, 8> *)&B_shared_frag[b * 8] =
            *(const tl::vec<tl::fp8_e4m3fnuz_t, 8> *)&B_shared[(B_shared_at ^ (ki * 16)) + (k % 3) * 8192 + b * 2048];
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          tl::mfma_32x32x16_f32_e4m3fnuz(&C_local[(i * 4 + j) * 16], &B_shared_frag[j * 8], &A_shared_frag[i * 8]);
        }
      }
    }
  }
  // T.copy (line 16)
  #pragma unroll
  for (int c = 0; c < 32; ++c) {
    tl::vec<tl::fp8_e4m3fnuz_t, 4> C_row;
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      C_row[lane] = tl::fp8_e4m3fnuz_t(C_local[c * 4 + lane]);
    }
    *(tl::vec<tl::fp8_e4m3fnuz_t, 4> *)&C[(by * 128 + (tx / 64) * 64 + (c >> 4) * 32 + tx % 32) * 4096 + bx * 128 + (c & 15) * 8 + ((tx % 64) >> 5) * 4] =
        C_row;
  }
}
