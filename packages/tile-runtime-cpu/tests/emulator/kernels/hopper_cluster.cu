// C[M, N] = A[M, K] @ B[N, K]^T, bf16 inputs, f32 result, tiles of 64 x 128 x 64 by clusters of two blocks, one above the
// other: each brings its own rows of A and half of the columns' B, which goes to both.
#include "tl_cuda.cuh"

constexpr int kStages = 2, kTileA = 64 * 128, kHalfB = 64 * 128, kStage = kTileA + 2 * kHalfB;

extern "C" __global__ void __launch_bounds__(256, 1) gemm(const __grid_constant__ tl::tensor_map A,
                                                       const __grid_constant__ tl::tensor_map B, float* C, int M, int N, int K) {
  unsigned char* shared = tl::shared_memory();
  uint64_t* full = (uint64_t*)(shared + kStages * kStage);
  uint64_t* empty = full + kStages;
  uint32_t rank = tl::cluster_rank();
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      tl::mbarrier_init(full + s, 1);
      tl::mbarrier_init(empty + s, 8);  // four warps of each block
    }
    tl::fence_mbarrier_init();
  }
  tl::cluster_sync();  // both blocks have their mbarriers
  int steps = K / 64;
  if (threadIdx.x < 128) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < steps; ++i) {
        int s = i % kStages;
        tl::mbarrier_wait(empty + s, (i / kStages & 1) ^ 1);  // free in both blocks
        tl::mbarrier_arrive_expect_tx(full + s, kStage);
        tl::tma_load(shared + s * kStage, &A, full + s, i * 64, blockIdx.y * 64);
        tl::tma_load_multicast(shared + s * kStage + kTileA + rank * kHalfB, &B, full + s, 3, i * 64,
                               blockIdx.x * 128 + rank * 64);
      }
    }
  } else {
    float acc[64];
    for (int i = 0; i < steps; ++i) {
      int s = i % kStages;
      tl::mbarrier_wait(full + s, i / kStages & 1);
      uint64_t a = tl::wgmma_descriptor<128>(shared + s * kStage, 16, 1024);
      uint64_t b = tl::wgmma_descriptor<128>(shared + s * kStage + kTileA, 16, 1024);
      tl::wgmma_hold<64>(acc);
      tl::wgmma_fence();
      for (int k = 0; k < 4; ++k) {
        tl::wgmma_m64k16_f32_bf16<128>(acc, tl::wgmma_descriptor_advance(a, k * 32), tl::wgmma_descriptor_advance(b, k * 32),
                                       i + k > 0);
      }
      tl::wgmma_commit();
      tl::wgmma_wait<0>();
      tl::wgmma_hold<64>(acc);
      if (threadIdx.x % 32 < 2) tl::mbarrier_arrive_cluster(empty + s, threadIdx.x % 32);  // the stage is free for both
    }
    int lane = threadIdx.x % 32, row = blockIdx.y * 64 + (threadIdx.x - 128) / 32 * 16 + lane / 4;
    int column = blockIdx.x * 128 + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      for (int h = 0; h < 2; ++h) {
        if (row + h * 8 >= M || column + j * 8 >= N) continue;
        *(tl::vec<float, 2>*)(C + (row + h * 8) * N + column + j * 8) = *(tl::vec<float, 2>*)&acc[4 * j + 2 * h];
      }
    }
  }
  tl::cluster_sync();  // nobody leaves while the other still arrives here
}
