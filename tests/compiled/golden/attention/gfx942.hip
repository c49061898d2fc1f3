#include "tl_hip.h"

extern "C" __global__ void __launch_bounds__(128) main_kernel(
    const tl::half_t *__restrict__ Q,
    const tl::half_t *__restrict__ K,
    const tl::half_t *__restrict__ V,
    tl::half_t *__restrict__ O) {
  const int gx = blockIdx.x;
  const int gy = blockIdx.y;
  const int bz = blockIdx.z;
  const int tx = threadIdx.x;
  tl::half_t *Q_shared = (tl::half_t *)tl::shared_memory();
  tl::half_t *K_shared = (tl::half_t *)(tl::shared_memory() + 16384);
  tl::half_t *V_shared = (tl::half_t *)(tl::shared_memory() + 32768);
  alignas(16) float scores[32];
  alignas(16) tl::half_t weights[32];
  alignas(16) float out[64];
  float largest;
  float before;
  float rescale;
  float tile_sum;
  float total;
  // T.copy (line 23)
  const int Q_shared_place = ((tx % 16) >> 3) * 4096 + (tx / 16) * 64 + (tx % 8) * 8;
  const int Q_shared_at = Q_shared_place ^ ((Q_shared_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    *(tl::vec<tl::half_t, 8> *)&Q_shared[Q_shared_at + c * 512] =
        *(const tl::vec<tl::half_t, 8> *)&Q[bz * 16777216 + gx * 524288 + (c * 8 + tx / 16 + 4032 - gy * 64) * 128 + (tx % 16) * 8];
  }
  // T.fill (line 24)
  #pragma unroll
  for (int c = 0; c < 64; ++c) {
    out[c] = 0.0f;
  }
  // T.fill (line 25)
  total = 0.0f;
  // T.fill (line 26)
  largest = -INFINITY;
  for (int k = 0; k < 64 - gy; ++k) {
    // T.copy (line 29)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      tl::load_to_lds<4>(
          &K_shared[c * 256 + (tx / 64) * 64 * 2],
          &K[bz * 16777216 + gx * 524288 + (k * 64 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 4095) >> 6)) * 128 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) >> 12) * 64 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 63)]);
    }
    // T.fill (line 30)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      scores[c] = 0.0f;
    }
    tl::wait_loads<0>();
    alignas(8) tl::half_t Q_shared_frag[4];
    alignas(16) tl::half_t K_shared_frag[8];
    // T.gemm (line 31)
    const int Q_shared_place_1 = (tx / 64) * 2048 + (tx % 32) * 64 + ((tx % 64) >> 5) * 4;
    const int Q_shared_at_1 = Q_shared_place_1 ^ ((Q_shared_place_1 >> 3) & 56);
    const int K_shared_place = (tx % 32) * 64 + ((tx % 64) >> 5) * 4;
    const int K_shared_at = K_shared_place ^ ((K_shared_place >> 3) & 56);
    tl::sync_threads();
    #pragma unroll
    for (int ki = 0; ki < 16; ++ki) {
      *(tl::vec<tl::half_t, 4> *)Q_shared_frag =
          *(const tl::vec<tl::half_t, 4> *)&Q_shared[(Q_shared_at_1 ^ ((ki & 7) * 8)) + (ki >> 3) * 4096];
      #pragma unroll
      for (int b = 0; b < 2; ++b) {
        *(tl::vec<tl::half_t, 4> *)&K_shared_frag[b * 4] =
            *(const tl::vec<tl::half_t, 4> *)&K_shared[(K_shared_at ^ ((ki & 7) * 8)) + (ki >> 3) * 4096 + b * 2048];
      }
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        tl::mfma_32x32x8_f32_f16(&scores[j * 16], &K_shared_frag[j * 4], Q_shared_frag);
      }
    }
    if ((k + 1) * 64 > (63 - gy) * 64) {
      // T.Parallel (line 34)
      #pragma unroll
      for (int c = 0; c < 32; ++c) {
        const int i = (tx / 64) * 32 + tx % 32;
        const int j = (c >> 2) * 8 + ((tx % 64) >> 5) * 4 + (c & 3);
        const bool seen = k * 64 + j <= (63 - gy) * 64 + i;
        scores[c] = seen ? scores[c] : -INFINITY;
      }
    }
    // T.copy (line 37)
    before = largest;
    float largest_part;
    // T.reduce_max (line 38)
    largest_part = -INFINITY;
    #pragma unroll
    for (int s = 0; s < 32; ++s) {
      largest_part = fmaxf(scores[s], largest_part);
    }
    const float largest_other = tl::shfl_xor(largest_part, 32);
    largest_part = fmaxf(largest_other, largest_part);
    largest = fmaxf(largest, largest_part);
    // T.Parallel (line 39)
    rescale = tl::fast::exp2((before - largest) * 0.12751743f);
    // T.Parallel (line 41)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      scores[c] = tl::fast::exp2(scores[c] * 0.12751743f - largest * 0.12751743f);
    }
    float tile_sum_part;
    // T.reduce_sum (line 43)
    tile_sum_part = 0.0f;
    #pragma unroll
    for (int s = 0; s < 32; ++s) {
      tile_sum_part += scores[s];
    }
    const float tile_sum_other = tl::shfl_xor(tile_sum_part, 32);
    tile_sum_part += tile_sum_other;
    tile_sum = tile_sum_part;
    // T.Parallel (line 44)
    total = total * rescale + tile_sum;
    // T.copy (line 46)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      weights[c] = tl::half_t(scores[c]);
    }
    // T.Parallel (line 47)
    #pragma unroll
    for (int c = 0; c < 64; ++c) {
      out[c] *= rescale;
    }
    // T.copy (line 49)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      tl::load_to_lds<4>(
          &V_shared[c * 256 + (tx / 64) * 64 * 2],
          &V[bz * 16777216 + gx * 524288 + (k * 64 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 4095) >> 6)) * 128 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) >> 12) * 64 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 63)]);
    }
    tl::wait_loads<0>();
    alignas(16) tl::half_t V_shared_frag[16];
    // T.gemm (line 50)
    const int V_shared_place = ((tx % 64) >> 5) * 256 + tx % 32;
    const int V_shared_at = V_shared_place ^ ((V_shared_place >> 3) & 56);
    tl::sync_threads();
    #pragma unroll
    for (int ki = 0; ki < 8; ++ki) {
      #pragma unroll
      for (int b = 0; b < 4; ++b) {
        #pragma unroll
        for (int r = 0; r < 4; ++r) {
          V_shared_frag[b * 4 + r] =
              V_shared[(V_shared_at ^ (((r * 64 + (b & 1) * 32) ^ (((r * 64 + (b & 1) * 32) >> 3) & 56)) & 56)) + (((r * 64 + (b & 1) * 32) ^ (((r * 64 + (b & 1) * 32) >> 3) & 56)) & 192) + (b >> 1) * 4096 + ki * 512];
        }
      }
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        tl::mfma_32x32x8_f32_f16(&out[j * 16], &V_shared_frag[j * 4], &weights[ki * 4]);
      }
    }
  }
  // T.Parallel (line 51)
  #pragma unroll
  for (int c = 0; c < 64; ++c) {
    out[c] = tl::fast::divide(out[c], total);
  }
  // T.copy (line 53)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::vec<tl::half_t, 4> O_row;
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      O_row[lane] = tl::half_t(out[c * 4 + lane]);
    }
    *(tl::vec<tl::half_t, 4> *)&O[bz * 16777216 + gx * 524288 + ((tx / 64) * 32 + tx % 32 + 4032 - gy * 64) * 128 + c * 8 + ((tx % 64) >> 5) * 4] =
        O_row;
  }
}
