// C[M, N] = A[M, K] @ B[N, K]^T, f16 inputs, f32 result: tiles of 64 x 64 x 32, four waves of 32 x 32, two stages that
// loads fill without a way through registers.
#include "tl_hip.h"

// A wave's load fills 256 bytes: 4 rows. Each wave loads 16 rows of the tile.
static __device__ void load(tl::half_t* to, const tl::half_t* from, int k, int column) {
  int lane = threadIdx.x % 64, wave = threadIdx.x / 64;
  for (int i = 0; i < 4; ++i) {
    int row = wave * 16 + i * 4;
    tl::load_to_lds<4>(to + row * 32, from + (row + lane / 16) * k + column + lane % 16 * 2);
  }
}

extern "C" __global__ void __launch_bounds__(256) gemm(const tl::half_t* A, const tl::half_t* B, float* C, int N, int K) {
  tl::half_t* sA = (tl::half_t*)tl::shared_memory();
  tl::half_t* sB = sA + 2 * 64 * 32;
  float acc[16];
  for (int i = 0; i < 16; ++i) acc[i] = 0.0f;
  int lane = threadIdx.x % 64, wave = threadIdx.x / 64, wm = wave / 2 * 32, wn = wave % 2 * 32;
  A += blockIdx.y * 64 * K;
  B += blockIdx.x * 64 * K;
  load(sA, A, K, 0);
  load(sB, B, K, 0);
  for (int k = 0, stage = 0; k < K; k += 32, stage ^= 1) {
    if (k + 32 < K) {
      load(sA + (stage ^ 1) * 2048, A, K, k + 32);
      load(sB + (stage ^ 1) * 2048, B, K, k + 32);
      tl::wait_loads<8>();
    } else {
      tl::wait_loads<0>();
    }
    tl::sync_threads();  // stage has arrived for all
    for (int kk = 0; kk < 32; kk += 8) {
      tl::vec<tl::half_t, 4> a = *(tl::vec<tl::half_t, 4>*)(sA + stage * 2048 + (wm + lane % 32) * 32 + kk + lane / 32 * 4);
      tl::vec<tl::half_t, 4> b = *(tl::vec<tl::half_t, 4>*)(sB + stage * 2048 + (wn + lane % 32) * 32 + kk + lane / 32 * 4);
      tl::mfma_32x32x8_f32_f16(acc, &a, &b);
    }
    tl::sync_threads();  // stage may be overwritten
  }
  for (int i = 0; i < 16; ++i) {
    C[(blockIdx.y * 64 + wm + i / 4 * 8 + lane / 32 * 4 + i % 4) * N + blockIdx.x * 64 + wn + lane % 32] = acc[i];
  }
}
