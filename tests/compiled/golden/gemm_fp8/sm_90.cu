#include "tl_cuda.cuh"

extern "C" __global__ void __launch_bounds__(128) main_kernel(
    const tl::fp8_e4m3_t *__restrict__ A,
    const tl::fp8_e4m3_t *__restrict__ B,
    tl::bfloat16_t *__restrict__ C) {
  const int block_x = blockIdx.x;
  const int block_y = blockIdx.y;
  const int tx = threadIdx.x;
  const int bx =
      ((block_y >> 3) & 1) == 0 ? ((block_y & 7) * 32 + block_x) >> 3 : 31 - (((block_y & 7) * 32 + block_x) >> 3);
  const int by = (block_y >> 3) * 8 + (((block_y & 7) * 32 + block_x) & 7);
  tl::fp8_e4m3_t *A_shared = (tl::fp8_e4m3_t *)tl::shared_memory();
  tl::fp8_e4m3_t *B_shared = (tl::fp8_e4m3_t *)(tl::shared_memory() + 24576);
  alignas(16) float C_local[128];
  // T.fill (line 8)
  #pragma unroll
  for (int c = 0; c < 128; ++c) {
    C_local[c] = 0.0f;
  }
  // T.copy (line 10)
  const int A_shared_place = tx * 16;
  const int A_shared_at = A_shared_place ^ ((A_shared_place >> 3) & 48);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    tl::cp_async<16>(&A_shared[A_shared_at + c * 2048], &A[(by * 128 + c * 32 + tx / 4) * 4096 + (tx % 4) * 16]);
  }
  // T.copy (line 12)
  const int B_shared_place = tx * 16;
  const int B_shared_at = B_shared_place ^ ((B_shared_place >> 3) & 48);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    tl::cp_async<16>(&B_shared[B_shared_at + c * 2048], &B[(bx * 128 + c * 32 + tx / 4) * 4096 + (tx % 4) * 16]);
  }
  tl::cp_async_commit();
  // T.copy (line 10)
  const int A_shared_place_1 = tx * 16;
  const int A_shared_at_1 = A_shared_place_1 ^ ((A_shared_place_1 >> 3) & 48);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    tl::cp_async<16>(
        &A_shared[A_shared_at_1 + c * 2048 + 8192],
        &A[(by * 128 + c * 32 + tx / 4) * 4096 + (tx % 4) * 16 + 64]);
  }
  // T.copy (line 12)
  const int B_shared_place_1 = tx * 16;
  const int B_shared_at_1 = B_shared_place_1 ^ ((B_shared_place_1 >> 3) & 48);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    tl::cp_async<16>(
        &B_shared[B_shared_at_1 + c * 2048 + 8192],
        &B[(bx * 128 + c * 32 + tx / 4) * 4096 + (tx % 4) * 16 + 64]);
  }
  tl::cp_async_commit();
  for (int k = 0; k < 64; ++k) {
    tl::cp_async_wait<1>();
    tl::sync_threads();
    if (k + 2 < 64) {
      // T.copy (line 10)
      const int A_shared_place_2 = tx * 16;
      const int A_shared_at_2 = A_shared_place_2 ^ ((A_shared_place_2 >> 3) & 48);
      #pragma unroll
      for (int c = 0; c < 4; ++c) {
        tl::cp_async<16>(
            &A_shared[A_shared_at_2 + ((k + 2) % 3) * 8192 + c * 2048],
            &A[(by * 128 + c * 32 + tx / 4) * 4096 + k * 64 + (tx % 4) * 16 + 128]);
      }
      // T.copy (line 12)
      const int B_shared_place_2 = tx * 16;
      const int B_shared_at_2 = B_shared_place_2 ^ ((B_shared_place_2 >> 3) & 48);
      #pragma unroll
      for (int c = 0; c < 4; ++c) {
        tl::cp_async<16>(
            &B_shared[B_shared_at_2 + ((k + 2) % 3) * 8192 + c * 2048],
            &B[(bx * 128 + c * 32 + tx / 4) * 4096 + k * 64 + (tx % 4) * 16 + 128]);
      }
    }
    tl::cp_async_commit();
    alignas(16) tl::fp8_e4m3_t A_shared_frag[64];
    alignas(16) tl::fp8_e4m3_t B_shared_frag[64];
    // T.gemm (line 15)
    const int A_shared_place_2 = ((tx % 64) >> 5) * 4096 + (tx % 16) * 64 + ((tx % 32) >> 4) * 16;
    const int A_shared_at_2 = A_shared_place_2 ^ ((A_shared_place_2 >> 3) & 48);
    const int B_shared_place_2 =
        (tx / 64) * 4096 + ((tx % 32) >> 4) * 512 + (tx % 8) * 64 + ((tx % 16) >> 3) * 16;
    const int B_shared_at_2 = B_shared_place_2 ^ ((B_shared_place_2 >> 3) & 48);
    #pragma unroll
    for (int ki = 0; ki < 2; ++ki) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        tl::ldmatrix_x4(&A_shared_frag[j * 16], &A_shared[(A_shared_at_2 ^ (ki * 32)) + (k % 3) * 8192 + j * 1024]);
      }
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        tl::ldmatrix_x4(&B_shared_frag[j * 16], &B_shared[(B_shared_at_2 ^ (ki * 32)) + (k % 3) * 8192 + j * 1024]);
      }
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          tl::mma_m16n8k32_f32_e4m3(&C_local[(i * 8 + j) * 4], &A_shared_frag[i * 16], &B_shared_frag[j * 8]);
        }
      }
    }
  }
  alignas(16) tl::bfloat16_t C_part[8];
  // T.copy (line 16)
  #pragma unroll
  for (int g = 0; g < 16; ++g) {
    #pragma unroll
    for (int u = 0; u < 8; ++u) {
      C_part[u] = tl::bfloat16_t(C_local[g * 8 + u]);
    }
    tl::transpose_quad(C_part);
    *(tl::vec<tl::bfloat16_t, 8> *)&C[(by * 128 + ((tx % 64) >> 5) * 64 + (g >> 2) * 16 + (tx % 2) * 8 + ((tx % 32) >> 2)) * 4096 + bx * 128 + (tx / 64) * 64 + (g & 3) * 16 + ((tx % 4) >> 1) * 8] =
        *(const tl::vec<tl::bfloat16_t, 8> *)C_part;
  }
}
