#include "tl_hip.h"

extern "C" __global__ void __launch_bounds__(128) main_kernel(const float *__restrict__ X, float *__restrict__ Y) {
  const int bm = blockIdx.x;
  const int tx = threadIdx.x;
  float *tile = (float *)tl::shared_memory();
  float *tile_scan = (float *)(tl::shared_memory() + 16384);
  // T.copy (line 5)
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    *(tl::vec<float, 4> *)&tile[c * 512 + tx * 4] =
        *(const tl::vec<float, 4> *)&X[(bm * 8 + c) * 512 + tx * 4];
  }
  // T.copy (line 6)
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    *(tl::vec<float, 4> *)&tile_scan[c * 512 + tx * 4] =
        *(const tl::vec<float, 4> *)&tile[c * 512 + tx * 4];
  }
  float running;
  // T.cumsum (line 6)
  tl::sync_threads();
  if (tx < 8) {
    running = tile_scan[tx * 512];
    for (int k = 0; k < 511; ++k) {
      running += tile_scan[tx * 512 + k + 1];
      tile_scan[tx * 512 + k + 1] = running;
    }
  }
  // T.copy (line 6)
  tl::sync_threads();
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    *(tl::vec<float, 4> *)&tile[c * 512 + tx * 4] =
        *(const tl::vec<float, 4> *)&tile_scan[c * 512 + tx * 4];
  }
  // T.copy (line 7)
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    *(tl::vec<float, 4> *)&Y[(bm * 8 + c) * 512 + tx * 4] =
        *(const tl::vec<float, 4> *)&tile[c * 512 + tx * 4];
  }
}
