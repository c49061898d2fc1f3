// C[M, N] = A[M, K] @ B[N, K]^T, f16 inputs, f32 result: tiles of 64 x 128 x 64. Warpgroup 0 brings tiles by TMA (128-byte
// swizzle), warpgroup 1 multiplies by wgmma; two stages, handed over by mbarriers.
#include "tl_cuda.cuh"

constexpr int kStages = 2, kTileA = 64 * 128, kTileB = 128 * 128, kStage = kTileA + kTileB;

extern "C" __global__ void __launch_bounds__(256, 1) gemm(const __grid_constant__ tl::tensor_map A,
                                                       const __grid_constant__ tl::tensor_map B, float* C, int N, int K) {
  unsigned char* shared = tl::shared_memory();
  uint64_t* full = (uint64_t*)(shared + kStages * kStage);
  uint64_t* empty = full + kStages;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      tl::mbarrier_init(full + s, 1);
      tl::mbarrier_init(empty + s, 4);
    }
    tl::fence_mbarrier_init();
  }
  tl::sync_threads();
  int steps = K / 64;
  if (threadIdx.x < 128) {
    tl::register_limit_decrease<40>();
    if (threadIdx.x == 0) {
      for (int i = 0; i < steps; ++i) {
        int s = i % kStages;
        tl::mbarrier_wait(empty + s, (i / kStages & 1) ^ 1);  // the stage is free
        tl::mbarrier_arrive_expect_tx(full + s, kStage);
        tl::tma_load(shared + s * kStage, &A, full + s, i * 64, blockIdx.y * 64);
        tl::tma_load<tl::evict_last>(shared + s * kStage + kTileA, &B, full + s, i * 64, blockIdx.x * 128);
      }
    }
  } else {
    tl::register_limit_increase<232>();
    float acc[64];
    for (int i = 0; i < steps; ++i) {
      int s = i % kStages;
      tl::mbarrier_wait(full + s, i / kStages & 1);  // the stage has arrived
      uint64_t a = tl::wgmma_descriptor<128>(shared + s * kStage, 16, 1024);
      uint64_t b = tl::wgmma_descriptor<128>(shared + s * kStage + kTileA, 16, 1024);
      tl::wgmma_hold<64>(acc);
      tl::wgmma_fence();
      for (int k = 0; k < 4; ++k) {
        tl::wgmma_m64k16_f32_f16<128>(acc, tl::wgmma_descriptor_advance(a, k * 32), tl::wgmma_descriptor_advance(b, k * 32),
                                      i + k > 0);
      }
      tl::wgmma_commit();
      tl::wgmma_wait<0>();  // the stage is read
      tl::wgmma_hold<64>(acc);
      if (threadIdx.x % 32 == 0) tl::mbarrier_arrive(empty + s);
    }
    int lane = threadIdx.x % 32, row = blockIdx.y * 64 + (threadIdx.x - 128) / 32 * 16 + lane / 4;
    float* to = C + row * N + blockIdx.x * 128 + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      for (int h = 0; h < 2; ++h) *(tl::vec<float, 2>*)(to + h * 8 * N + j * 8) = *(tl::vec<float, 2>*)&acc[4 * j + 2 * h];
    }
  }
}
