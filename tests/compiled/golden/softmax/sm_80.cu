#include "tl_cuda.cuh"

extern "C" __global__ void __launch_bounds__(128) main_kernel(const float *__restrict__ X, float *__restrict__ Y) {
  const int bm = blockIdx.x;
  const int tx = threadIdx.x;
  float *X_tile = (float *)tl::shared_memory();
  alignas(16) float powers[16];
  float largest[4];
  float largest_before[4];
  float tile_sum[4];
  float total[4];
  // T.fill (line 13)
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    largest[c] = -3.4028235e+38f;
  }
  // T.fill (line 14)
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    total[c] = 0.0f;
  }
  for (int k = 0; k < 32; ++k) {
    // T.copy (line 16)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      *(tl::vec<float, 4> *)&X_tile[c * 512 + tx * 4] =
          *(const tl::vec<float, 4> *)&X[(bm * 16 + c * 4 + tx / 32) * 4096 + k * 128 + (tx % 32) * 4];
    }
    // T.copy (line 17)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      largest_before[c] = largest[c];
    }
    alignas(16) float X_tile_tile[16];
    // T.copy (line 18)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      *(tl::vec<float, 4> *)&X_tile_tile[c * 4] = *(const tl::vec<float, 4> *)&X_tile[c * 512 + tx * 4];
    }
    float largest_part[4];
    // T.reduce_max (line 18)
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      largest_part[r] = -INFINITY;
    }
    #pragma unroll
    for (int s = 0; s < 16; ++s) {
      largest_part[s >> 2] = fmaxf(X_tile_tile[s], largest_part[s >> 2]);
    }
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float largest_other = tl::shfl_xor(largest_part[r], 1);
      largest_part[r] = fmaxf(largest_other, largest_part[r]);
    }
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float largest_other = tl::shfl_xor(largest_part[r], 2);
      largest_part[r] = fmaxf(largest_other, largest_part[r]);
    }
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float largest_other = tl::shfl_xor(largest_part[r], 4);
      largest_part[r] = fmaxf(largest_other, largest_part[r]);
    }
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float largest_other = tl::shfl_xor(largest_part[r], 8);
      largest_part[r] = fmaxf(largest_other, largest_part[r]);
    }
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float largest_other = tl::shfl_xor(largest_part[r], 16);
      largest_part[r] = fmaxf(largest_other, largest_part[r]);
    }
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      largest[r] = fmaxf(largest[r], largest_part[r]);
    }
    // T.Parallel (line 19)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      alignas(16) float X_tile_part[4];
      *(tl::vec<float, 4> *)X_tile_part = *(const tl::vec<float, 4> *)&X_tile[c * 512 + tx * 4];
      #pragma unroll
      for (int u = 0; u < 4; ++u) {
        powers[c * 4 + u] = exp2f((X_tile_part[u] - largest[c]) * 1.442695f);
      }
    }
    float tile_sum_part[4];
    // T.reduce_sum (line 21)
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      tile_sum_part[r] = 0.0f;
    }
    #pragma unroll
    for (int s = 0; s < 16; ++s) {
      tile_sum_part[s >> 2] += powers[s];
    }
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float tile_sum_other = tl::shfl_xor(tile_sum_part[r], 1);
      tile_sum_part[r] += tile_sum_other;
    }
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float tile_sum_other = tl::shfl_xor(tile_sum_part[r], 2);
      tile_sum_part[r] += tile_sum_other;
    }
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float tile_sum_other = tl::shfl_xor(tile_sum_part[r], 4);
      tile_sum_part[r] += tile_sum_other;
    }
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float tile_sum_other = tl::shfl_xor(tile_sum_part[r], 8);
      tile_sum_part[r] += tile_sum_other;
    }
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      const float tile_sum_other = tl::shfl_xor(tile_sum_part[r], 16);
      tile_sum_part[r] += tile_sum_other;
    }
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      tile_sum[r] = tile_sum_part[r];
    }
    // T.Parallel (line 22)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      total[c] = total[c] * exp2f((largest_before[c] - largest[c]) * 1.442695f) + tile_sum[c];
    }
  }
  for (int k_1 = 0; k_1 < 32; ++k_1) {
    // T.copy (line 26)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      *(tl::vec<float, 4> *)&X_tile[c * 512 + tx * 4] =
          *(const tl::vec<float, 4> *)&X[(bm * 16 + c * 4 + tx / 32) * 4096 + k_1 * 128 + (tx % 32) * 4];
    }
    // T.Parallel (line 27)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      alignas(16) float X_tile_part[4];
      *(tl::vec<float, 4> *)X_tile_part = *(const tl::vec<float, 4> *)&X_tile[c * 512 + tx * 4];
      #pragma unroll
      for (int u = 0; u < 4; ++u) {
        powers[c * 4 + u] = exp2f((X_tile_part[u] - largest[c]) * 1.442695f) / total[c];
      }
    }
    // T.copy (line 29)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      *(tl::vec<float, 4> *)&Y[(bm * 16 + c * 4 + tx / 32) * 4096 + k_1 * 128 + (tx % 32) * 4] =
          *(const tl::vec<float, 4> *)&powers[c * 4];
    }
  }
}
