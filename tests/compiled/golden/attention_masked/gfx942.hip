#include "tl_hip.h"

extern "C" __global__ void __launch_bounds__(128) main_kernel(
    const tl::half_t *__restrict__ Q,
    const tl::half_t *__restrict__ K,
    const tl::half_t *__restrict__ V,
    tl::half_t *__restrict__ O) {
  const int block_bx = blockIdx.x;
  const int by = blockIdx.y;
  const int bz = blockIdx.z;
  const int tx = threadIdx.x;
  const int bx = 62 - block_bx;
  tl::half_t *Q_tile = (tl::half_t *)tl::shared_memory();
  tl::half_t *K_tile = (tl::half_t *)(tl::shared_memory() + 8192);
  tl::half_t *V_tile = (tl::half_t *)(tl::shared_memory() + 24576);
  alignas(16) float scores[32];
  alignas(16) tl::half_t weights[32];
  alignas(16) float out[32];
  float largest;
  float largest_before;
  float rescale;
  float tile_sum;
  float total;
  // T.copy (line 21)
  const int Q_tile_place = tx * 8;
  const int Q_tile_at = Q_tile_place ^ ((Q_tile_place >> 3) & 56);
  if (bx < 62) {
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      *(tl::vec<tl::half_t, 8> *)&Q_tile[Q_tile_at + c * 1024] =
          *(const tl::vec<tl::half_t, 8> *)&Q[bz * 8192000 + (bx * 64 + c * 16 + tx / 8) * 2048 + by * 64 + (tx % 8) * 8];
    }
  } else {
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      tl::vec<tl::half_t, 8> Q_tile_row;
      if (bx * 64 + c * 16 + tx / 8 < 4000) {
        Q_tile_row =
            *(const tl::vec<tl::half_t, 8> *)&Q[bz * 8192000 + (bx * 64 + c * 16 + tx / 8) * 2048 + by * 64 + (tx % 8) * 8];
      } else {
        #pragma unroll
        for (int lane = 0; lane < 8; ++lane) {
          Q_tile_row[lane] = tl::half_t(0.0f);
        }
      }
      *(tl::vec<tl::half_t, 8> *)&Q_tile[Q_tile_at + c * 1024] = Q_tile_row;
    }
  }
  // T.fill (line 22)
  #pragma unroll
  for (int c = 0; c < 32; ++c) {
    out[c] = 0.0f;
  }
  // T.fill (line 23)
  total = 0.0f;
  // T.fill (line 24)
  largest = -INFINITY;
  alignas(16) tl::half_t K_tile_next[32];
  alignas(16) tl::half_t V_tile_next[32];
  // T.copy (line 30)
  const int K_tile_place = tx * 8;
  const int K_tile_at = K_tile_place ^ ((K_tile_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    *(tl::vec<tl::half_t, 8> *)&K_tile[K_tile_at + c * 1024] =
        *(const tl::vec<tl::half_t, 8> *)&K[bz * 2048000 + (c * 16 + tx / 8) * 512 + (by >> 2) * 64 + (tx % 8) * 8];
  }
  // T.copy (line 52)
  const int V_tile_place = tx * 8;
  const int V_tile_at = V_tile_place ^ ((V_tile_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    *(tl::vec<tl::half_t, 8> *)&V_tile[V_tile_at + c * 1024] =
        *(const tl::vec<tl::half_t, 8> *)&V[bz * 2048000 + (c * 16 + tx / 8) * 512 + (by >> 2) * 64 + (tx % 8) * 8];
  }
  for (int k = 0; k < bx + 1; ++k) {
    if (k + 1 < bx + 1) {
      // T.copy (line 30)
      if (k < 61) {
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          *(tl::vec<tl::half_t, 8> *)&K_tile_next[c * 8] =
              *(const tl::vec<tl::half_t, 8> *)&K[bz * 2048000 + (k * 64 + c * 16 + tx / 8 + 64) * 512 + (by >> 2) * 64 + (tx % 8) * 8];
        }
      } else {
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          tl::vec<tl::half_t, 8> K_tile_next_row;
          if (k * 64 + c * 16 + tx / 8 + 64 < 4000) {
            K_tile_next_row =
                *(const tl::vec<tl::half_t, 8> *)&K[bz * 2048000 + (k * 64 + c * 16 + tx / 8 + 64) * 512 + (by >> 2) * 64 + (tx % 8) * 8];
          } else {
            #pragma unroll
            for (int lane = 0; lane < 8; ++lane) {
              K_tile_next_row[lane] = tl::half_t(0.0f);
            }
          }
          *(tl::vec<tl::half_t, 8> *)&K_tile_next[c * 8] = K_tile_next_row;
        }
      }
      // T.copy (line 52)
      if (k < 61) {
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          *(tl::vec<tl::half_t, 8> *)&V_tile_next[c * 8] =
              *(const tl::vec<tl::half_t, 8> *)&V[bz * 2048000 + (k * 64 + c * 16 + tx / 8 + 64) * 512 + (by >> 2) * 64 + (tx % 8) * 8];
        }
      } else {
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          tl::vec<tl::half_t, 8> V_tile_next_row;
          if (k * 64 + c * 16 + tx / 8 + 64 < 4000) {
            V_tile_next_row =
                *(const tl::vec<tl::half_t, 8> *)&V[bz * 2048000 + (k * 64 + c * 16 + tx / 8 + 64) * 512 + (by >> 2) * 64 + (tx % 8) * 8];
          } else {
            #pragma unroll
            for (int lane = 0; lane < 8; ++lane) {
              V_tile_next_row[lane] = tl::half_t(0.0f);
            }
          }
          *(tl::vec<tl::half_t, 8> *)&V_tile_next[c * 8] = V_tile_next_row;
        }
      }
    }
    // T.Parallel (line 32)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      const int i = (tx / 64) * 32 + tx % 32;
      const int j = (c >> 2) * 8 + ((tx % 64) >> 5) * 4 + (c & 3);
      const bool seen = k * 64 + j < 4000;
      const bool seen_1 = seen && k * 64 + j <= bx * 64 + i;
      scores[c] = seen_1 ? 0.0f : -INFINITY;
    }
    alignas(8) tl::half_t Q_tile_frag[4];
    alignas(16) tl::half_t K_tile_frag[8];
    // T.gemm (line 37)
    const int Q_tile_place_1 = (tx / 64) * 2048 + (tx % 32) * 64 + ((tx % 64) >> 5) * 4;
    const int Q_tile_at_1 = Q_tile_place_1 ^ ((Q_tile_place_1 >> 3) & 56);
    const int K_tile_place_1 = (tx % 32) * 64 + ((tx % 64) >> 5) * 4;
    const int K_tile_at_1 = K_tile_place_1 ^ ((K_tile_place_1 >> 3) & 56);
    tl::sync_threads();
    #pragma unroll
    for (int ki = 0; ki < 8; ++ki) {
      *(tl::vec<tl::half_t, 4> *)Q_tile_frag =
          *(const tl::vec<tl::half_t, 4> *)&Q_tile[Q_tile_at_1 ^ (ki * 8)];
      #pragma unroll
      for (int b = 0; b < 2; ++b) {
        *(tl::vec<tl::half_t, 4> *)&K_tile_frag[b * 4] =
            *(const tl::vec<tl::half_t, 4> *)&K_tile[(K_tile_at_1 ^ (ki * 8)) + (k & 1) * 4096 + b * 2048];
      }
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        tl::mfma_32x32x8_f32_f16(&scores[j * 16], &K_tile_frag[j * 4], Q_tile_frag);
      }
    }
    // T.copy (line 40)
    largest_before = largest;
    float largest_part;
    // T.reduce_max (line 41)
    largest_part = -INFINITY;
    #pragma unroll
    for (int s = 0; s < 32; ++s) {
      largest_part = fmaxf(scores[s], largest_part);
    }
    const float largest_other = tl::shfl_xor(largest_part, 32);
    largest_part = fmaxf(largest_other, largest_part);
    largest = fmaxf(largest, largest_part);
    // T.Parallel (line 42)
    rescale = tl::fast::exp2((largest_before - largest) * 0.18033688f);
    // T.Parallel (line 44)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      scores[c] = tl::fast::exp2((scores[c] - largest) * 0.18033688f);
    }
    float tile_sum_part;
    // T.reduce_sum (line 46)
    tile_sum_part = 0.0f;
    #pragma unroll
    for (int s = 0; s < 32; ++s) {
      tile_sum_part += scores[s];
    }
    const float tile_sum_other = tl::shfl_xor(tile_sum_part, 32);
    tile_sum_part += tile_sum_other;
    tile_sum = tile_sum_part;
    // T.Parallel (line 47)
    total = total * rescale + tile_sum;
    // T.Parallel (line 49)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      out[c] *= rescale;
    }
    // T.copy (line 53)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      weights[c] = tl::half_t(scores[c]);
    }
    alignas(16) tl::half_t V_tile_frag[8];
    // T.gemm (line 54)
    const int V_tile_place_1 = ((tx % 64) >> 5) * 256 + tx % 32;
    const int V_tile_at_1 = V_tile_place_1 ^ ((V_tile_place_1 >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 8; ++ki) {
      #pragma unroll
      for (int b = 0; b < 2; ++b) {
        #pragma unroll
        for (int r = 0; r < 4; ++r) {
          V_tile_frag[b * 4 + r] =
              V_tile[(V_tile_at_1 ^ (((r * 64 + b * 32) ^ (((r * 64 + b * 32) >> 3) & 56)) & 56)) + (((r * 64 + b * 32) ^ (((r * 64 + b * 32) >> 3) & 56)) & 192) + (k & 1) * 4096 + ki * 512];
        }
      }
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        tl::mfma_32x32x8_f32_f16(&out[j * 16], &V_tile_frag[j * 4], &weights[ki * 4]);
      }
    }
    if (k + 1 < bx + 1) {
      // T.copy (line 30)
      const int K_tile_place_2 = tx * 8;
      const int K_tile_at_2 = K_tile_place_2 ^ ((K_tile_place_2 >> 3) & 56);
      #pragma unroll
      for (int c = 0; c < 4; ++c) {
        *(tl::vec<tl::half_t, 8> *)&K_tile[K_tile_at_2 + ((k + 1) & 1) * 4096 + c * 1024] =
            *(const tl::vec<tl::half_t, 8> *)&K_tile_next[c * 8];
      }
      // T.copy (line 52)
      const int V_tile_place_2 = tx * 8;
      const int V_tile_at_2 = V_tile_place_2 ^ ((V_tile_place_2 >> 3) & 56);
      #pragma unroll
      for (int c = 0; c < 4; ++c) {
        *(tl::vec<tl::half_t, 8> *)&V_tile[V_tile_at_2 + ((k + 1) & 1) * 4096 + c * 1024] =
            *(const tl::vec<tl::half_t, 8> *)&V_tile_next[c * 8];
      }
    }
  }
  // T.Parallel (line 56)
  #pragma unroll
  for (int c = 0; c < 32; ++c) {
    out[c] = tl::fast::divide(out[c], total);
  }
  // T.copy (line 58)
  if (bx < 62) {
    #pragma unroll
    for (int c = 0; c < 8; ++c) {
      tl::vec<tl::half_t, 4> O_row;
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        O_row[lane] = tl::half_t(out[c * 4 + lane]);
      }
      *(tl::vec<tl::half_t, 4> *)&O[bz * 8192000 + (bx * 64 + (tx / 64) * 32 + tx % 32) * 2048 + by * 64 + c * 8 + ((tx % 64) >> 5) * 4] =
          O_row;
    }
  } else {
    #pragma unroll
    for (int c = 0; c < 8; ++c) {
      if (bx * 64 + (tx / 64) * 32 + tx % 32 < 4000) {
        tl::vec<tl::half_t, 4> O_row;
        #pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
          O_row[lane] = tl::half_t(out[c * 4 + lane]);
        }
        *(tl::vec<tl::half_t, 4> *)&O[bz * 8192000 + (bx * 64 + (tx / 64) * 32 + tx % 32) * 2048 + by * 64 + c * 8 + ((tx % 64) >> 5) * 4] =
            O_row;
      }
    }
  }
}
