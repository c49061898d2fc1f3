#include "tl_cuda.cuh"

extern "C" __global__ void __launch_bounds__(128) main_kernel(
    const float *__restrict__ A,
    const float *__restrict__ B,
    float *__restrict__ C) {
  const int block_x = blockIdx.x;
  const int block_y = blockIdx.y;
  const int tx = threadIdx.x;
  const int bx =
      ((block_y >> 3) & 1) == 0 ? ((block_y & 7) * 64 + block_x) >> 3 : 63 - (((block_y & 7) * 64 + block_x) >> 3);
  const int by = (block_y >> 3) * 8 + (((block_y & 7) * 64 + block_x) & 7);
  float *A_shared = (float *)tl::shared_memory();
  float *B_shared = (float *)(tl::shared_memory() + 49152);
  alignas(16) float C_local[32];
  // T.fill (line 8)
  #pragma unroll
  for (int c = 0; c < 32; ++c) {
    C_local[c] = 0.0f;
  }
  // T.copy (line 10)
  const int A_shared_place = ((tx % 16) >> 3) * 2048 + (tx / 16) * 32 + (tx % 8) * 4;
  const int A_shared_at = A_shared_place ^ ((A_shared_place >> 3) & 28);
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    tl::cp_async<16>(&A_shared[A_shared_at + c * 256], &A[(by * 64 + c * 8 + tx / 16) * 4096 + (tx % 16) * 4]);
  }
  // T.copy (line 12)
  const int B_shared_place = ((tx % 16) >> 3) * 2048 + (tx / 16) * 32 + (tx % 8) * 4;
  const int B_shared_at = B_shared_place ^ ((B_shared_place >> 3) & 28);
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    tl::cp_async<16>(&B_shared[B_shared_at + c * 256], &B[(bx * 64 + c * 8 + tx / 16) * 4096 + (tx % 16) * 4]);
  }
  tl::cp_async_commit();
  // T.copy (line 10)
  const int A_shared_place_1 = ((tx % 16) >> 3) * 2048 + (tx / 16) * 32 + (tx % 8) * 4;
  const int A_shared_at_1 = A_shared_place_1 ^ ((A_shared_place_1 >> 3) & 28);
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    tl::cp_async<16>(
        &A_shared[A_shared_at_1 + c * 256 + 4096],
        &A[(by * 64 + c * 8 + tx / 16) * 4096 + (tx % 16) * 4 + 64]);
  }
  // T.copy (line 12)
  const int B_shared_place_1 = ((tx % 16) >> 3) * 2048 + (tx / 16) * 32 + (tx % 8) * 4;
  const int B_shared_at_1 = B_shared_place_1 ^ ((B_shared_place_1 >> 3) & 28);
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    tl::cp_async<16>(
        &B_shared[B_shared_at_1 + c * 256 + 4096],
        &B[(bx * 64 + c * 8 + tx / 16) * 4096 + (tx % 16) * 4 + 64]);
  }
  tl::cp_async_commit();
  for (int k = 0; k < 64; ++k) {
    tl::cp_async_wait<1>();
    tl::sync_threads();
    if (k + 2 < 64) {
      // T.copy (line 10)
      const int A_shared_place_2 = ((tx % 16) >> 3) * 2048 + (tx / 16) * 32 + (tx % 8) * 4;
      const int A_shared_at_2 = A_shared_place_2 ^ ((A_shared_place_2 >> 3) & 28);
      #pragma unroll
      for (int c = 0; c < 8; ++c) {
        tl::cp_async<16>(
            &A_shared[A_shared_at_2 + ((k + 2) % 3) * 4096 + c * 256],
            &A[(by * 64 + c * 8 + tx / 16) * 4096 + k * 64 + (tx % 16) * 4 + 128]);
      }
      // T.copy (line 12)
      const int B_shared_place_2 = ((tx % 16) >> 3) * 2048 + (tx / 16) * 32 + (tx % 8) * 4;
      const int B_shared_at_2 = B_shared_place_2 ^ ((B_shared_place_2 >> 3) & 28);
      #pragma unroll
      for (int c = 0; c < 8; ++c) {
        tl::cp_async<16>(
            &B_shared[B_shared_at_2 + ((k + 2) % 3) * 4096 + c * 256],
            &B[(bx * 64 + c * 8 + tx / 16) * 4096 + k * 64 + (tx % 16) * 4 + 128]);
      }
    }
    tl::cp_async_commit();
    alignas(16) float A_shared_frag[8];
    alignas(16) float B_shared_frag[8];
    alignas(16) float C_local_part[32];
    // T.gemm (line 15)
    const int A_shared_place_2 = ((tx % 64) >> 5) * 1024 + (tx % 16) * 32 + ((tx % 32) >> 4) * 4;
    const int A_shared_at_2 = A_shared_place_2 ^ ((A_shared_place_2 >> 3) & 28);
    const int B_shared_place_2 =
        (tx / 64) * 1024 + ((tx % 32) >> 4) * 256 + (tx % 8) * 32 + ((tx % 16) >> 3) * 4;
    const int B_shared_at_2 = B_shared_place_2 ^ ((B_shared_place_2 >> 3) & 28);
    for (int p = 0; p < 2; ++p) {
      #pragma unroll
      for (int r = 0; r < 32; ++r) {
        C_local_part[r] = 0.0f;
      }
      #pragma unroll
      for (int ki = 0; ki < 4; ++ki) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
          tl::ldmatrix_x4(
              &A_shared_frag[j * 4],
              &A_shared[(A_shared_at_2 ^ (ki * 8)) + (k % 3) * 4096 + p * 2048 + j * 512]);
        }
        tl::ldmatrix_x4(B_shared_frag, &B_shared[(B_shared_at_2 ^ (ki * 8)) + (k % 3) * 4096 + p * 2048]);
        tl::ldmatrix_x4(&B_shared_frag[4], &B_shared[(B_shared_at_2 ^ (ki * 8)) + (k % 3) * 4096 + p * 2048 + 512]);
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          tl::mma_m16n32k8_f32_tf32x3(&C_local_part[i * 16], &A_shared_frag[i * 4], B_shared_frag);
        }
      }
      #pragma unroll
      for (int r = 0; r < 32; ++r) {
        C_local[r] += C_local_part[r];
      }
    }
  }
  // T.copy (line 16)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    *(tl::vec<float, 2> *)&C[(by * 64 + ((tx % 64) >> 5) * 32 + (c >> 3) * 16 + (c & 1) * 8 + ((tx % 32) >> 2)) * 4096 + bx * 64 + (tx / 64) * 32 + ((c & 7) >> 1) * 8 + (tx % 4) * 2] =
        *(const tl::vec<float, 2> *)&C_local[c * 2];
  }
}
