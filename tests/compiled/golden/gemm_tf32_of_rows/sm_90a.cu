#include "tl_cuda.cuh"

extern "C" __global__ void __launch_bounds__(160) main_kernel(
    float *__restrict__ C,
    const __grid_constant__ tl::tensor_map A_map,
    const __grid_constant__ tl::tensor_map B_map) {
  const int block_x = blockIdx.x;
  const int block_y = blockIdx.y;
  const int tx = threadIdx.x;
  const int bx =
      ((block_y >> 3) & 1) == 0 ? ((block_y & 7) * 32 + block_x) >> 3 : 31 - (((block_y & 7) * 32 + block_x) >> 3);
  const int by = (block_y >> 3) * 8 + (((block_y & 7) * 32 + block_x) & 7);
  float *A_shared = (float *)tl::shared_memory();
  float *B_shared = (float *)(tl::shared_memory() + 49152);
  uint64_t *A_shared_B_shared_full = (uint64_t *)(tl::shared_memory() + 98304);
  uint64_t *A_shared_B_shared_empty = (uint64_t *)(tl::shared_memory() + 98328);
  if (tx == 0) {
    tl::mbarrier_init(A_shared_B_shared_full, 1);
    tl::mbarrier_init(&A_shared_B_shared_full[1], 1);
    tl::mbarrier_init(&A_shared_B_shared_full[2], 1);
    tl::mbarrier_init(A_shared_B_shared_empty, 4);
    tl::mbarrier_init(&A_shared_B_shared_empty[1], 4);
    tl::mbarrier_init(&A_shared_B_shared_empty[2], 4);
    tl::fence_mbarrier_init();
  }
  tl::sync_threads();
  if (tl::uniform(tx / 32) < 4) {
    if (tx == 0) {
      tl::prefetch_tensor_map(&A_map);
      tl::prefetch_tensor_map(&B_map);
    }
    alignas(16) float C_local[128];
    // T.fill (line 8)
    #pragma unroll
    for (int c = 0; c < 128; ++c) {
      C_local[c] = 0.0f;
    }
    for (int k = 0; k < 128; ++k) {
      tl::mbarrier_wait(&A_shared_B_shared_full[k % 3], (k / 3) & 1);
      alignas(16) float B_shared_frag[32];
      // T.gemm (line 15)
      const int B_shared_place =
          (tx / 64) * 1024 + (tx % 4) * 32 + ((tx % 16) >> 3) * 16 + ((tx % 64) >> 4) * 4 + ((tx % 8) >> 2) * 2;
      const int B_shared_at = B_shared_place ^ ((B_shared_place >> 3) & 28);
      tl::wgmma_wait<0>();
      tl::wgmma_hold<128>(C_local);
      #pragma unroll
      for (int ki = 0; ki < 4; ++ki) {
        #pragma unroll
        for (int b = 0; b < 2; ++b) {
          #pragma unroll
          for (int r = 0; r < 2; ++r) {
            *(tl::vec<float, 2> *)&B_shared_frag[ki * 8 + b * 4 + r * 2] =
                *(const tl::vec<float, 2> *)&B_shared[(B_shared_at ^ (((r * 128) ^ (((r * 128) >> 3) & 28)) & 16)) + (((r * 128) ^ (((r * 128) >> 3) & 28)) & 128) + (k % 3) * 4096 + b * 2048 + ki * 256];
          }
        }
      }
      tl::wgmma_hold<128>(C_local);
      tl::wgmma_hold<32>(B_shared_frag);
      tl::wgmma_fence();
      #pragma unroll
      for (int ki = 0; ki < 4; ++ki) {
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          tl::wgmma_m64k8_f32_tf32_rs<128>(
              &C_local[i * 64],
              &B_shared_frag[ki * 8 + i * 4],
              tl::wgmma_descriptor<128>(&A_shared[(k % 3) * 4096], 16, 1024, ki * 32),
              true);
        }
      }
      tl::wgmma_commit();
      tl::wgmma_wait<1>();
      tl::fence_proxy_async_shared();
      if (k > 0) {
        tl::sync_warp();
        if (tx % 32 == 0) {
          tl::mbarrier_arrive(&A_shared_B_shared_empty[(k - 1) % 3]);
        }
      }
    }
    tl::wgmma_wait<0>();
    tl::wgmma_hold<128>(C_local);
    tl::sync_warp();
    if (tx % 32 == 0) {
      tl::mbarrier_arrive(&A_shared_B_shared_empty[1]);
    }
    // T.copy (line 16)
    #pragma unroll
    for (int c = 0; c < 64; ++c) {
      alignas(8) float C_part[2];
      #pragma unroll
      for (int u = 0; u < 2; ++u) {
        C_part[u] = C_local[(c >> 1) * 4 + u * 2 + (c & 1)];
      }
      *(tl::vec<float, 2> *)&C[(by * 128 + ((c & 31) >> 1) * 8 + (tx % 4) * 2 + (c & 1)) * 4096 + bx * 128 + (c >> 5) * 64 + (tx / 64) * 32 + ((tx % 16) >> 3) * 16 + ((tx % 64) >> 4) * 4 + ((tx % 8) >> 2) * 2] =
          *(const tl::vec<float, 2> *)C_part;
    }
  } else if (tx == 128) {
    for (int k = 0; k < 128; ++k) {
      tl::mbarrier_wait(&A_shared_B_shared_empty[k % 3], ((k / 3) & 1) ^ 1);
      tl::mbarrier_arrive_expect_tx(&A_shared_B_shared_full[k % 3], 32768);
      // TMA copy (line 10)
      tl::tma_load(&A_shared[(k % 3) * 4096], &A_map, &A_shared_B_shared_full[k % 3], k * 32, by * 128);
      // TMA copy (line 14)
      tl::tma_load(&B_shared[(k % 3) * 4096], &B_map, &A_shared_B_shared_full[k % 3], 0, k * 32, bx * 4);
    }
  }
}
