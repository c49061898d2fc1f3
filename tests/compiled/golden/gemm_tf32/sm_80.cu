#include "tl_cuda.cuh"

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
  const int A_shared_place = tx * 4;
  const int A_shared_at = A_shared_place ^ ((A_shared_place >> 3) & 12);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    tl::cp_async<16>(&A_shared[A_shared_at + c * 512], &A[(by * 128 + c * 32 + tx / 4) * 4096 + (tx % 4) * 4]);
  }
  // T.copy (line 14)
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int B_shared_place = ((tx % 32) >> 3) * 512 + c * 128 + (tx / 32) * 32 + (tx % 8) * 4;
    tl::cp_async<16>(
        &B_shared[B_shared_place ^ ((B_shared_place >> 3) & 28)],
        &B[(c * 4 + tx / 32) * 4096 + bx * 128 + (tx % 32) * 4]);
  }
  tl::cp_async_commit();
  // T.copy (line 10)
  const int A_shared_place_1 = tx * 4;
  const int A_shared_at_1 = A_shared_place_1 ^ ((A_shared_place_1 >> 3) & 12);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    tl::cp_async<16>(
        &A_shared[A_shared_at_1 + c * 512 + 2048],
        &A[(by * 128 + c * 32 + tx / 4) * 4096 + (tx % 4) * 4 + 16]);
  }
  // T.copy (line 14)
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int B_shared_place = ((tx % 32) >> 3) * 512 + c * 128 + (tx / 32) * 32 + (tx % 8) * 4 + 2048;
    tl::cp_async<16>(
        &B_shared[B_shared_place ^ ((B_shared_place >> 3) & 28)],
        &B[(c * 4 + tx / 32 + 16) * 4096 + bx * 128 + (tx % 32) * 4]);
  }
  tl::cp_async_commit();
  for (int k = 0; k < 256; ++k) {
    tl::cp_async_wait<1>();
    tl::sync_threads();
    if (k + 2 < 256) {
      // T.copy (line 10)
      const int A_shared_place_2 = tx * 4;
      const int A_shared_at_2 = A_shared_place_2 ^ ((A_shared_place_2 >> 3) & 12);
      #pragma unroll
      for (int c = 0; c < 4; ++c) {
        tl::cp_async<16>(
            &A_shared[A_shared_at_2 + ((k + 2) % 3) * 2048 + c * 512],
            &A[(by * 128 + c * 32 + tx / 4) * 4096 + k * 16 + (tx % 4) * 4 + 32]);
      }
      // T.copy (line 14)
      #pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int B_shared_place =
            ((k + 2) % 3) * 2048 + ((tx % 32) >> 3) * 512 + c * 128 + (tx / 32) * 32 + (tx % 8) * 4;
        tl::cp_async<16>(
            &B_shared[B_shared_place ^ ((B_shared_place >> 3) & 28)],
            &B[(k * 16 + c * 4 + tx / 32 + 32) * 4096 + bx * 128 + (tx % 32) * 4]);
      }
    }
    tl::cp_async_commit();
    alignas(16) float A_shared_frag[16];
    alignas(16) float B_shared_frag[16];
    // T.gemm (line 15)
    const int A_shared_place_2 = ((tx % 64) >> 5) * 1024 + (tx % 16) * 16 + ((tx % 32) >> 4) * 4;
    const int A_shared_at_2 = A_shared_place_2 ^ ((A_shared_place_2 >> 3) & 12);
    const int B_shared_place = (tx / 64) * 1024 + (tx % 4) * 32 + ((tx % 32) >> 2);
    const int B_shared_at = B_shared_place ^ ((B_shared_place >> 3) & 28);
    #pragma unroll
    for (int ki = 0; ki < 2; ++ki) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        tl::ldmatrix_x4(&A_shared_frag[j * 4], &A_shared[(A_shared_at_2 ^ (ki * 8)) + (k % 3) * 2048 + j * 256]);
      }
      #pragma unroll
      for (int b = 0; b < 4; ++b) {
        #pragma unroll
        for (int r = 0; r < 4; ++r) {
          A_shared_frag[b * 4 + r] = tl::to_tf32(A_shared_frag[b * 4 + r]);
        }
      }
      #pragma unroll
      for (int b = 0; b < 8; ++b) {
        #pragma unroll
        for (int r = 0; r < 2; ++r) {
          B_shared_frag[b * 2 + r] =
              B_shared[(B_shared_at ^ (((r * 128 + (b & 3) * 8) ^ (((r * 128 + (b & 3) * 8) >> 3) & 28)) & 8)) + (((r * 128 + (b & 3) * 8) ^ (((r * 128 + (b & 3) * 8) >> 3) & 28)) & 144) + (k % 3) * 2048 + (b >> 2) * 512 + ki * 256];
        }
      }
      #pragma unroll
      for (int b = 0; b < 8; ++b) {
        #pragma unroll
        for (int r = 0; r < 2; ++r) {
          B_shared_frag[b * 2 + r] = tl::to_tf32(B_shared_frag[b * 2 + r]);
        }
      }
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          tl::mma_m16n8k8_f32_tf32(&C_local[(i * 8 + j) * 4], &A_shared_frag[i * 4], &B_shared_frag[j * 2]);
        }
      }
    }
  }
  // T.copy (line 16)
  #pragma unroll
  for (int c = 0; c < 64; ++c) {
    *(tl::vec<float, 2> *)&C[(by * 128 + ((tx % 64) >> 5) * 64 + (c >> 4) * 16 + (c & 1) * 8 + ((tx % 32) >> 2)) * 4096 + bx * 128 + (tx / 64) * 64 + ((c & 15) >> 1) * 8 + (tx % 4) * 2] =
        *(const tl::vec<float, 2> *)&C_local[c * 2];
  }
}
