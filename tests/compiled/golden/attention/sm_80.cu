#include "tl_cuda.cuh"

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
  tl::half_t *K_shared = (tl::half_t *)(tl::shared_memory() + 32768);
  tl::half_t *V_shared = (tl::half_t *)(tl::shared_memory() + 57344);
  alignas(16) float scores[48];
  alignas(16) tl::half_t weights[48];
  alignas(16) float out[128];
  float largest[4];
  float before[4];
  float rescale[4];
  float tile_sum[4];
  float total[4];
  // T.copy (line 23)
  const int Q_shared_place = ((tx % 16) >> 3) * 8192 + (tx / 16) * 64 + (tx % 8) * 8;
  const int Q_shared_at = Q_shared_place ^ ((Q_shared_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    *(tl::vec<tl::half_t, 8> *)&Q_shared[Q_shared_at + c * 512] =
        *(const tl::vec<tl::half_t, 8> *)&Q[bz * 16777216 + gx * 524288 + (c * 8 + tx / 16 + 3968 - gy * 128) * 128 + (tx % 16) * 8];
  }
  // T.fill (line 24)
  #pragma unroll
  for (int c = 0; c < 128; ++c) {
    out[c] = 0.0f;
  }
  // T.fill (line 25)
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    total[c] = 0.0f;
  }
  // T.fill (line 26)
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    largest[c] = -INFINITY;
  }
  // T.copy (line 29)
  const int K_shared_place = ((tx % 16) >> 3) * 3072 + (tx / 16) * 64 + (tx % 8) * 8;
  const int K_shared_at = K_shared_place ^ ((K_shared_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 6; ++c) {
    tl::cp_async<16>(
        &K_shared[K_shared_at + c * 512],
        &K[bz * 16777216 + gx * 524288 + (c * 8 + tx / 16) * 128 + (tx % 16) * 8]);
  }
  // T.copy (line 49)
  const int V_shared_place = ((tx % 16) >> 3) * 3072 + (tx / 16) * 64 + (tx % 8) * 8;
  const int V_shared_at = V_shared_place ^ ((V_shared_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 6; ++c) {
    tl::cp_async<16>(
        &V_shared[V_shared_at + c * 512],
        &V[bz * 16777216 + gx * 524288 + (c * 8 + tx / 16) * 128 + (tx % 16) * 8]);
  }
  tl::cp_async_commit();
  for (int k = 0; k < (4143 - gy * 128) / 48; ++k) {
    tl::cp_async_wait<0>();
    tl::sync_threads();
    if (k + 1 < (4143 - gy * 128) / 48) {
      // T.copy (line 29)
      const int K_shared_place_1 = ((tx % 16) >> 3) * 3072 + (tx / 16) * 64 + (tx % 8) * 8;
      const int K_shared_at_1 = K_shared_place_1 ^ ((K_shared_place_1 >> 3) & 56);
      if (k < 84) {
        #pragma unroll
        for (int c = 0; c < 6; ++c) {
          tl::cp_async<16>(
              &K_shared[K_shared_at_1 + ((k + 1) & 1) * 6144 + c * 512],
              &K[bz * 16777216 + gx * 524288 + (k * 48 + c * 8 + tx / 16 + 48) * 128 + (tx % 16) * 8]);
        }
      } else {
        #pragma unroll
        for (int c = 0; c < 6; ++c) {
          tl::cp_async<16>(
              &K_shared[K_shared_at_1 + ((k + 1) & 1) * 6144 + c * 512],
              &K[bz * 16777216 + gx * 524288 + (k * 48 + c * 8 + tx / 16 + 48) * 128 + (tx % 16) * 8],
              k * 6 + c < 506);
        }
      }
      // T.copy (line 49)
      const int V_shared_place_1 = ((tx % 16) >> 3) * 3072 + (tx / 16) * 64 + (tx % 8) * 8;
      const int V_shared_at_1 = V_shared_place_1 ^ ((V_shared_place_1 >> 3) & 56);
      if (k < 84) {
        #pragma unroll
        for (int c = 0; c < 6; ++c) {
          tl::cp_async<16>(
              &V_shared[V_shared_at_1 + ((k + 1) & 1) * 6144 + c * 512],
              &V[bz * 16777216 + gx * 524288 + (k * 48 + c * 8 + tx / 16 + 48) * 128 + (tx % 16) * 8]);
        }
      } else {
        #pragma unroll
        for (int c = 0; c < 6; ++c) {
          tl::cp_async<16>(
              &V_shared[V_shared_at_1 + ((k + 1) & 1) * 6144 + c * 512],
              &V[bz * 16777216 + gx * 524288 + (k * 48 + c * 8 + tx / 16 + 48) * 128 + (tx % 16) * 8],
              k * 6 + c < 506);
        }
      }
    }
    tl::cp_async_commit();
    // T.fill (line 30)
    #pragma unroll
    for (int c = 0; c < 48; ++c) {
      scores[c] = 0.0f;
    }
    alignas(16) tl::half_t Q_shared_frag[16];
    alignas(16) tl::half_t K_shared_frag[24];
    // T.gemm (line 31)
    const int Q_shared_place_1 = (tx / 32) * 2048 + (tx % 16) * 64 + ((tx % 32) >> 4) * 8;
    const int Q_shared_at_1 = Q_shared_place_1 ^ ((Q_shared_place_1 >> 3) & 56);
    const int K_shared_place_1 = ((tx % 32) >> 4) * 512 + (tx % 8) * 64 + ((tx % 16) >> 3) * 8;
    const int K_shared_at_1 = K_shared_place_1 ^ ((K_shared_place_1 >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 8; ++ki) {
      #pragma unroll
      for (int j = 0; j < 2; ++j) {
        tl::ldmatrix_x4(
            &Q_shared_frag[j * 8],
            &Q_shared[(Q_shared_at_1 ^ ((ki & 3) * 16)) + (ki >> 2) * 8192 + j * 1024]);
      }
      #pragma unroll
      for (int j = 0; j < 3; ++j) {
        tl::ldmatrix_x4(
            &K_shared_frag[j * 8],
            &K_shared[(K_shared_at_1 ^ ((ki & 3) * 16)) + (k & 1) * 6144 + (ki >> 2) * 3072 + j * 1024]);
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 6; ++j) {
          tl::mma_m16n8k16_f32_f16(&scores[(i * 6 + j) * 4], &Q_shared_frag[i * 8], &K_shared_frag[j * 4]);
        }
      }
    }
    if ((k + 1) * 48 > (31 - gy) * 128) {
      // T.Parallel (line 34)
      #pragma unroll
      for (int c = 0; c < 48; ++c) {
        const int i = (tx / 32) * 32 + (c / 24) * 16 + ((c & 3) >> 1) * 8 + ((tx % 32) >> 2);
        const int j = ((c % 24) >> 2) * 8 + (tx % 4) * 2 + (c & 1);
        const bool seen = k * 48 + j <= (31 - gy) * 128 + i;
        scores[c] = seen ? scores[c] : -INFINITY;
      }
    }
    // T.copy (line 37)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      before[c] = largest[c];
    }
    float largest_part[4];
    // T.reduce_max (line 38)
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      largest_part[r] = -INFINITY;
    }
    #pragma unroll
    for (int s = 0; s < 48; ++s) {
      largest_part[((s >> 1) & 1) + (s / 24) * 2] =
          fmaxf(scores[s], largest_part[((s >> 1) & 1) + (s / 24) * 2]);
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
      largest[r] = fmaxf(largest[r], largest_part[r]);
    }
    // T.Parallel (line 39)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      rescale[c] = tl::fast::exp2((before[c] - largest[c]) * 0.12751743f);
    }
    // T.Parallel (line 41)
    #pragma unroll
    for (int c = 0; c < 48; ++c) {
      scores[c] =
          tl::fast::exp2(scores[c] * 0.12751743f - largest[(c / 24) * 2 + ((c & 3) >> 1)] * 0.12751743f);
    }
    float tile_sum_part[4];
    // T.reduce_sum (line 43)
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      tile_sum_part[r] = 0.0f;
    }
    #pragma unroll
    for (int s = 0; s < 48; ++s) {
      tile_sum_part[((s >> 1) & 1) + (s / 24) * 2] += scores[s];
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
      tile_sum[r] = tile_sum_part[r];
    }
    // T.Parallel (line 44)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      total[c] = total[c] * rescale[c] + tile_sum[c];
    }
    // T.copy (line 46)
    #pragma unroll
    for (int c = 0; c < 48; ++c) {
      weights[c] = tl::half_t(scores[c]);
    }
    // T.Parallel (line 47)
    #pragma unroll
    for (int c = 0; c < 128; ++c) {
      out[c] *= rescale[(c >> 6) * 2 + ((c & 3) >> 1)];
    }
    alignas(16) tl::half_t V_shared_frag[64];
    // T.gemm (line 50)
    const int V_shared_place_1 = (tx % 16) * 64 + ((tx % 32) >> 4) * 8;
    const int V_shared_at_1 = V_shared_place_1 ^ ((V_shared_place_1 >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 3; ++ki) {
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        tl::ldmatrix_x4_trans(
            &V_shared_frag[j * 8],
            &V_shared[(V_shared_at_1 ^ ((j & 3) * 16)) + (k & 1) * 6144 + (j >> 2) * 3072 + ki * 1024]);
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 16; ++j) {
          tl::mma_m16n8k16_f32_f16(&out[(i * 16 + j) * 4], &weights[(i * 3 + ki) * 8], &V_shared_frag[j * 4]);
        }
      }
    }
  }
  // T.Parallel (line 51)
  #pragma unroll
  for (int c = 0; c < 128; ++c) {
    out[c] = tl::fast::divide(out[c], total[(c >> 6) * 2 + ((c & 3) >> 1)]);
  }
  alignas(16) tl::half_t O_part[8];
  // T.copy (line 53)
  #pragma unroll
  for (int g = 0; g < 16; ++g) {
    #pragma unroll
    for (int u = 0; u < 8; ++u) {
      O_part[u] = tl::half_t(out[g * 8 + u]);
    }
    tl::transpose_quad(O_part);
    *(tl::vec<tl::half_t, 8> *)&O[bz * 16777216 + gx * 524288 + ((tx / 32) * 32 + (g >> 3) * 16 + (tx % 2) * 8 + ((tx % 32) >> 2) + 3968 - gy * 128) * 128 + (g & 7) * 16 + ((tx % 4) >> 1) * 8] =
        *(const tl::vec<tl::half_t, 8> *)O_part;
  }
}
