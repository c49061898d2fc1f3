// C[M, N] = A[M, K] @ B[N, K]^T, all f16: tiles of 128 x 128 x 64, as many blocks as the launch has, each takes every so many
// tiles. Warpgroup 0 loads by TMA, warpgroups 1 and 2 multiply 64 rows each and store by stmatrix and TMA while the next
// tile is under way.
#include "tl_cuda.cuh"

constexpr int kStages = 3, kTile = 128 * 128, kStage = 2 * kTile, kOut = 64 * 128;  // bytes; kOut: 64 x 64 elements

struct Pipeline {
  int stage = 0, phase = 0;
  TL_DEVICE void advance() {
    if (++stage == kStages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

static TL_DEVICE void store_tile(const tl::tensor_map* C, unsigned char* out, const float* acc, int row, int column) {
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, group = threadIdx.x / 128;
  for (int half = 0; half < 2; ++half) {
    if (threadIdx.x % 128 == 0) tl::bulk_wait_read<0>();  // the buffer has been read
    tl::sync_barrier(group, 128);                         // by all known
    for (int j = 0; j < 4; ++j) {
      uint32_t pairs[4];
      for (int i = 0; i < 4; ++i) {
        const float* from = acc + 4 * (half * 8 + j * 2 + i / 2) + 2 * (i % 2);
        tl::half_t two[2] = {tl::half_t(from[0]), tl::half_t(from[1])};
        pairs[i] = *(uint32_t*)two;
      }
      int r = warp * 16 + lane % 16, chunk = j * 2 + lane / 16;
      tl::stmatrix_x4(out + r * 128 + (chunk ^ (r & 7)) * 16, pairs);
    }
    tl::fence_proxy_async();       // for the store below
    tl::sync_barrier(group, 128);  // the tile is whole
    if (threadIdx.x % 128 == 0) {
      tl::tma_store(C, out, column + half * 64, row);
      tl::bulk_commit();
    }
  }
}

extern "C" __global__ void __launch_bounds__(384)
    gemm(const __grid_constant__ tl::tensor_map A, const __grid_constant__ tl::tensor_map B,
         const __grid_constant__ tl::tensor_map C, int M, int N, int K) {
  unsigned char* shared = tl::shared_memory();
  unsigned char* out = shared + kStages * kStage;
  uint64_t* full = (uint64_t*)(out + 2 * kOut);
  uint64_t* empty = full + kStages;
  if (threadIdx.x == 0) {
    tl::prefetch_tensor_map(&A);
    for (int s = 0; s < kStages; ++s) {
      tl::mbarrier_init(full + s, 1);
      tl::mbarrier_init(empty + s, 2);
    }
    tl::fence_mbarrier_init();
  }
  tl::sync_threads();
  int across = (N + 127) / 128, tiles = (M + 127) / 128 * across, steps = (K + 63) / 64;
  Pipeline at;
  if (threadIdx.x < 128) {
    tl::register_limit_decrease<24>();
    if (threadIdx.x / 32 == 0 && tl::elect_one()) {
      for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        for (int i = 0; i < steps; ++i, at.advance()) {
          unsigned char* to = shared + at.stage * kStage;
          while (!tl::mbarrier_try_wait(empty + at.stage, at.phase ^ 1)) {
          }
          tl::mbarrier_arrive_expect_tx(full + at.stage, kStage);
          tl::tma_load(to, &A, full + at.stage, i * 64, tile / across * 128);
          tl::tma_load(to + kTile, &B, full + at.stage, i * 64, tile % across * 128);
        }
      }
    }
  } else {
    tl::register_limit_increase<240>();
    int group = threadIdx.x / 128 - 1;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      float acc[64];
      int held = -1;
      for (int i = 0; i < steps; ++i, at.advance()) {
        unsigned char* from = shared + at.stage * kStage;
        tl::mbarrier_wait(full + at.stage, at.phase);
        uint64_t a = tl::wgmma_descriptor<128>(from + group * (kTile / 2), 16, 1024);
        uint64_t b = tl::wgmma_descriptor<128>(from + kTile, 16, 1024);
        tl::wgmma_hold<64>(acc);
        tl::wgmma_fence();
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          tl::wgmma_m64k16_f32_f16<128>(acc, tl::wgmma_descriptor_advance(a, k * 32), tl::wgmma_descriptor_advance(b, k * 32),
                                        i + k > 0);
        }
        tl::wgmma_commit();
        tl::wgmma_wait<1>();  // the step before is done
        if (held >= 0 && threadIdx.x % 128 == 0) tl::mbarrier_arrive(empty + held);
        held = at.stage;
      }
      tl::wgmma_wait<0>();  // all of the tile is done
      tl::wgmma_hold<64>(acc);
      if (threadIdx.x % 128 == 0) tl::mbarrier_arrive(empty + held);
      store_tile(&C, out + group * kOut, acc, tile / across * 128 + group * 64, tile % across * 128);
    }
    if (threadIdx.x % 128 == 0) tl::bulk_wait<0>();  // the stores are done
  }
}
