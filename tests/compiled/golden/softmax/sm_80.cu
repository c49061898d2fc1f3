#include "tl_cuda.cuh"

extern "C" __global__ void __launch_bounds__(128) main_kernel(const float *__restrict__ X, float *__restrict__ Y) {
  const int bm = blockIdx.x;
  const int tx = threadIdx.x;
  float *X_tile = (float *)tl::shared_memory();
  float *X_tile_tile_rows = (float *)(tl::shared_memory() + 8192);
  float *powers_rows = (float *)(tl::shared_memory() + 16384);
  alignas(16) float powers[128];
  float largest;
  float largest_before;
  float tile_sum;
  float total;
  // T.fill (line 13)
  if (tx < 16) {
    largest = -3.4028235e+38f;
  }
  // T.fill (line 14)
  if (tx < 16) {
    total = 0.0f;
  }
  for (int k = 0; k < 32; ++k) {
    // T.copy (line 16)
    tl::sync_threads();
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int X_tile_place = ((tx % 32) >> 3) * 512 + c * 128 + (tx / 32) * 32 + (tx % 8) * 4;
      *(tl::vec<float, 4> *)&X_tile[X_tile_place ^ ((X_tile_place >> 3) & 28)] =
          *(const tl::vec<float, 4> *)&X[(bm * 16 + c * 4 + tx / 32) * 4096 + k * 128 + (tx % 32) * 4];
    }
    // T.copy (line 17)
    if (tx < 16) {
      largest_before = largest;
    }
    alignas(16) float X_tile_tile[16];
    // T.copy (line 18)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int X_tile_place = ((tx % 32) >> 3) * 512 + c * 128 + (tx / 32) * 32 + (tx % 8) * 4;
      *(tl::vec<float, 4> *)&X_tile_tile[c * 4] =
          *(const tl::vec<float, 4> *)&X_tile[X_tile_place ^ ((X_tile_place >> 3) & 28)];
    }
    float largest_part;
    // T.reduce_max (line 18)
    #pragma unroll
    for (int s = 0; s < 16; ++s) {
      X_tile_tile_rows[(s >> 2) * 512 + tx * 4 + (s & 3)] = X_tile_tile[s];
    }
    tl::sync_threads();
    if (tx < 16) {
      largest_part = -INFINITY;
      for (int k_1 = 0; k_1 < 128; ++k_1) {
        largest_part = fmaxf(X_tile_tile_rows[tx * 128 + k_1], largest_part);
      }
      largest = fmaxf(largest, largest_part);
    }
    // T.Parallel (line 19)
    const int X_tile_place = tx * 32;
    const int X_tile_at = X_tile_place ^ ((X_tile_place >> 3) & 28);
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      if (tx < 16) {
        alignas(16) float X_tile_part[4];
        *(tl::vec<float, 4> *)X_tile_part =
            *(const tl::vec<float, 4> *)&X_tile[(X_tile_at ^ ((c & 7) * 4)) + (c >> 3) * 512];
        #pragma unroll
        for (int u = 0; u < 4; ++u) {
          powers[c * 4 + u] = exp2f((X_tile_part[u] - largest) * 1.442695f);
        }
      }
    }
    float tile_sum_part;
    // T.reduce_sum (line 21)
    #pragma unroll
    for (int s = 0; s < 128; ++s) {
      if (tx < 16) {
        powers_rows[tx * 128 + s] = powers[s];
      }
    }
    if (tx < 16) {
      tile_sum_part = 0.0f;
      for (int k_1 = 0; k_1 < 128; ++k_1) {
        tile_sum_part += powers_rows[tx * 128 + k_1];
      }
      tile_sum = tile_sum_part;
    }
    // T.Parallel (line 22)
    if (tx < 16) {
      total = total * exp2f((largest_before - largest) * 1.442695f) + tile_sum;
    }
  }
  for (int k_1 = 0; k_1 < 32; ++k_1) {
    // T.copy (line 26)
    tl::sync_threads();
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int X_tile_place = ((tx % 32) >> 3) * 512 + c * 128 + (tx / 32) * 32 + (tx % 8) * 4;
      *(tl::vec<float, 4> *)&X_tile[X_tile_place ^ ((X_tile_place >> 3) & 28)] =
          *(const tl::vec<float, 4> *)&X[(bm * 16 + c * 4 + tx / 32) * 4096 + k_1 * 128 + (tx % 32) * 4];
    }
    // T.Parallel (line 27)
    const int X_tile_place = tx * 32;
    const int X_tile_at = X_tile_place ^ ((X_tile_place >> 3) & 28);
    tl::sync_threads();
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      if (tx < 16) {
        alignas(16) float X_tile_part[4];
        *(tl::vec<float, 4> *)X_tile_part =
            *(const tl::vec<float, 4> *)&X_tile[(X_tile_at ^ ((c & 7) * 4)) + (c >> 3) * 512];
        #pragma unroll
        for (int u = 0; u < 4; ++u) {
          powers[c * 4 + u] = exp2f((X_tile_part[u] - largest) * 1.442695f) / total;
        }
      }
    }
    // T.copy (line 29)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      if (tx < 16) {
        *(tl::vec<float, 4> *)&Y[(bm * 16 + tx) * 4096 + k_1 * 128 + c * 4] =
            *(const tl::vec<float, 4> *)&powers[c * 4];
      }
    }
  }
}
