// C[M, N] = A[M, K] @ B[N, K]^T, f16 inputs, f32 result: tiles of 64 x 64 x 32, four warps of 32 x 32, two stages.
#include "tl_cuda.cuh"

static __device__ int swizzled(int row, int chunk) { return row * 32 + ((chunk ^ ((row >> 1) & 3)) * 8); }

static __device__ void load(tl::half_t* to, const tl::half_t* from, int k, int column) {
  for (int i = 0; i < 2; ++i) {
    int c = threadIdx.x + i * 128, row = c / 4, chunk = c % 4;
    tl::cp_async<16>(to + swizzled(row, chunk), from + row * k + column + chunk * 8);
  }
}

extern "C" __global__ void __launch_bounds__(128) gemm(const tl::half_t* A, const tl::half_t* B, float* C, int N, int K) {
  tl::half_t* sA = (tl::half_t*)tl::shared_memory();
  tl::half_t* sB = sA + 2 * 64 * 32;
  float acc[2][4][4];
#pragma unroll
  for (int i = 0; i < 32; ++i) (&acc[0][0][0])[i] = 0.0f;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, wm = warp / 2 * 32, wn = warp % 2 * 32;
  A += blockIdx.y * 64 * K;
  B += blockIdx.x * 64 * K;
  load(sA, A, K, 0);
  load(sB, B, K, 0);
  tl::cp_async_commit();
  for (int k = 0, stage = 0; k < K; k += 32, stage ^= 1) {
    if (k + 32 < K) {
      load(sA + (stage ^ 1) * 2048, A, K, k + 32);
      load(sB + (stage ^ 1) * 2048, B, K, k + 32);
      tl::cp_async_commit();
      tl::cp_async_wait<1>();
    } else {
      tl::cp_async_wait<0>();
    }
    tl::sync_threads();  // stage has arrived for all
    for (int kk = 0; kk < 32; kk += 16) {
      uint32_t a[2][4], b[2][4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        tl::ldmatrix_x4(a[i], sA + stage * 2048 + swizzled(wm + i * 16 + lane % 16, kk / 8 + lane / 16));
        tl::ldmatrix_x4(b[i], sB + stage * 2048 + swizzled(wn + i * 16 + lane / 16 * 8 + lane % 8, kk / 8 + lane / 8 % 2));
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) tl::mma_m16n8k16_f32_f16(acc[i][j], a[i], b[j / 2] + j % 2 * 2);
    }
    tl::sync_threads();  // stage may be overwritten
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 4; ++j) {
      float* to = C + (blockIdx.y * 64 + wm + i * 16 + lane / 4) * N + blockIdx.x * 64 + wn + j * 8 + lane % 4 * 2;
      *(tl::vec<float, 2>*)to = *(tl::vec<float, 2>*)&acc[i][j][0];
      to += 8 * N;
      *(tl::vec<float, 2>*)to = *(tl::vec<float, 2>*)&acc[i][j][2];
    }
  }
}
