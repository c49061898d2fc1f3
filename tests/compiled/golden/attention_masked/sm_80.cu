#include "tl_cuda.cuh"

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
  float largest[2];
  float largest_before[2];
  float rescale[2];
  float tile_sum[2];
  float total[2];
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
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    total[c] = 0.0f;
  }
  // T.fill (line 24)
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    largest[c] = -INFINITY;
  }
  // T.copy (line 30)
  const int K_tile_place = tx * 8;
  const int K_tile_at = K_tile_place ^ ((K_tile_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    tl::cp_async<16>(
        &K_tile[K_tile_at + c * 1024],
        &K[bz * 2048000 + (c * 16 + tx / 8) * 512 + (by >> 2) * 64 + (tx % 8) * 8]);
  }
  // T.copy (line 52)
  const int V_tile_place = tx * 8;
  const int V_tile_at = V_tile_place ^ ((V_tile_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    tl::cp_async<16>(
        &V_tile[V_tile_at + c * 1024],
        &V[bz * 2048000 + (c * 16 + tx / 8) * 512 + (by >> 2) * 64 + (tx % 8) * 8]);
  }
  tl::cp_async_commit();
  for (int k = 0; k < bx + 1; ++k) {
    tl::cp_async_wait<0>();
    tl::sync_threads();
    if (k + 1 < bx + 1) {
      // T.copy (line 30)
      const int K_tile_place_1 = tx * 8;
      const int K_tile_at_1 = K_tile_place_1 ^ ((K_tile_place_1 >> 3) & 56);
      if (k < 61) {
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          tl::cp_async<16>(
              &K_tile[K_tile_at_1 + ((k + 1) & 1) * 4096 + c * 1024],
              &K[bz * 2048000 + (k * 64 + c * 16 + tx / 8 + 64) * 512 + (by >> 2) * 64 + (tx % 8) * 8]);
        }
      } else {
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          tl::cp_async<16>(
              &K_tile[K_tile_at_1 + ((k + 1) & 1) * 4096 + c * 1024],
              &K[bz * 2048000 + (k * 64 + c * 16 + tx / 8 + 64) * 512 + (by >> 2) * 64 + (tx % 8) * 8],
              k * 4 + c < 246);
        }
      }
      // T.copy (line 52)
      const int V_tile_place_1 = tx * 8;
      const int V_tile_at_1 = V_tile_place_1 ^ ((V_tile_place_1 >> 3) & 56);
      if (k < 61) {
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          tl::cp_async<16>(
              &V_tile[V_tile_at_1 + ((k + 1) & 1) * 4096 + c * 1024],
              &V[bz * 2048000 + (k * 64 + c * 16 + tx / 8 + 64) * 512 + (by >> 2) * 64 + (tx % 8) * 8]);
        }
      } else {
        #pragma unroll
        for (int c = 0; c < 4; ++c) {
          tl::cp_async<16>(
              &V_tile[V_tile_at_1 + ((k + 1) & 1) * 4096 + c * 1024],
              &V[bz * 2048000 + (k * 64 + c * 16 + tx / 8 + 64) * 512 + (by >> 2) * 64 + (tx % 8) * 8],
              k * 4 + c < 246);
        }
      }
    }
    tl::cp_async_commit();
    // T.Parallel (line 32)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      const int i = (tx / 32) * 16 + ((c & 3) >> 1) * 8 + ((tx % 32) >> 2);
      const int j = (c >> 2) * 8 + (tx % 4) * 2 + (c & 1);
      const bool seen = k * 64 + j < 4000;
      const bool seen_1 = seen && k * 64 + j <= bx * 64 + i;
      scores[c] = seen_1 ? 0.0f : -INFINITY;
    }
    alignas(16) tl::half_t Q_tile_frag[8];
    alignas(16) tl::half_t K_tile_frag[32];
    // T.gemm (line 37)
    const int Q_tile_place_1 = (tx / 32) * 1024 + (tx % 16) * 64 + ((tx % 32) >> 4) * 8;
    const int Q_tile_at_1 = Q_tile_place_1 ^ ((Q_tile_place_1 >> 3) & 56);
    const int K_tile_place_1 = ((tx % 32) >> 4) * 512 + (tx % 8) * 64 + ((tx % 16) >> 3) * 8;
    const int K_tile_at_1 = K_tile_place_1 ^ ((K_tile_place_1 >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 4; ++ki) {
      tl::ldmatrix_x4(Q_tile_frag, &Q_tile[Q_tile_at_1 ^ (ki * 16)]);
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        tl::ldmatrix_x4(&K_tile_frag[j * 8], &K_tile[(K_tile_at_1 ^ (ki * 16)) + (k & 1) * 4096 + j * 1024]);
      }
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        tl::mma_m16n8k16_f32_f16(&scores[j * 4], Q_tile_frag, &K_tile_frag[j * 4]);
      }
    }
    // T.copy (line 40)
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      largest_before[c] = largest[c];
    }
    float largest_part[2];
    // T.reduce_max (line 41)
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      largest_part[r] = -INFINITY;
    }
    #pragma unroll
    for (int s = 0; s < 32; ++s) {
      largest_part[(s >> 1) & 1] = fmaxf(scores[s], largest_part[(s >> 1) & 1]);
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float largest_other = tl::shfl_xor(largest_part[r], 1);
      largest_part[r] = fmaxf(largest_other, largest_part[r]);
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float largest_other = tl::shfl_xor(largest_part[r], 2);
      largest_part[r] = fmaxf(largest_other, largest_part[r]);
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      largest[r] = fmaxf(largest[r], largest_part[r]);
    }
    // T.Parallel (line 42)
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      rescale[c] = tl::fast::exp2((largest_before[c] - largest[c]) * 0.18033688f);
    }
    // T.Parallel (line 44)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      scores[c] = tl::fast::exp2((scores[c] - largest[(c & 3) >> 1]) * 0.18033688f);
    }
    float tile_sum_part[2];
    // T.reduce_sum (line 46)
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      tile_sum_part[r] = 0.0f;
    }
    #pragma unroll
    for (int s = 0; s < 32; ++s) {
      tile_sum_part[(s >> 1) & 1] += scores[s];
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float tile_sum_other = tl::shfl_xor(tile_sum_part[r], 1);
      tile_sum_part[r] += tile_sum_other;
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float tile_sum_other = tl::shfl_xor(tile_sum_part[r], 2);
      tile_sum_part[r] += tile_sum_other;
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      tile_sum[r] = tile_sum_part[r];
    }
    // T.Parallel (line 47)
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      total[c] = total[c] * rescale[c] + tile_sum[c];
    }
    // T.Parallel (line 49)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      out[c] *= rescale[(c & 3) >> 1];
    }
    // T.copy (line 53)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      weights[c] = tl::half_t(scores[c]);
    }
    alignas(16) tl::half_t V_tile_frag[32];
    // T.gemm (line 54)
    const int V_tile_place_1 = (tx % 16) * 64 + ((tx % 32) >> 4) * 8;
    const int V_tile_at_1 = V_tile_place_1 ^ ((V_tile_place_1 >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 4; ++ki) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        tl::ldmatrix_x4_trans(&V_tile_frag[j * 8], &V_tile[(V_tile_at_1 ^ (j * 16)) + (k & 1) * 4096 + ki * 1024]);
      }
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        tl::mma_m16n8k16_f32_f16(&out[j * 4], &weights[ki * 8], &V_tile_frag[j * 4]);
      }
    }
  }
  // T.Parallel (line 56)
  #pragma unroll
  for (int c = 0; c < 32; ++c) {
    out[c] = tl::fast::divide(out[c], total[(c & 3) >> 1]);
  }
  alignas(16) tl::half_t O_part[8];
  alignas(16) tl::half_t O_part_1[8];
  // T.copy (line 58)
  if (bx < 62) {
    #pragma unroll
    for (int g = 0; g < 4; ++g) {
      #pragma unroll
      for (int u = 0; u < 8; ++u) {
        O_part[u] = tl::half_t(out[g * 8 + u]);
      }
      tl::transpose_quad(O_part);
      *(tl::vec<tl::half_t, 8> *)&O[bz * 8192000 + (bx * 64 + (tx / 32) * 16 + (tx % 2) * 8 + ((tx % 32) >> 2)) * 2048 + by * 64 + g * 16 + ((tx % 4) >> 1) * 8] =
          *(const tl::vec<tl::half_t, 8> *)O_part;
    }
  } else {
    #pragma unroll
    for (int g = 0; g < 4; ++g) {
      #pragma unroll
      for (int u = 0; u < 8; ++u) {
        O_part_1[u] = tl::half_t(out[g * 8 + u]);
      }
      tl::transpose_quad(O_part_1);
      if (bx * 64 + (tx / 32) * 16 + (tx % 2) * 8 + ((tx % 32) >> 2) < 4000) {
        *(tl::vec<tl::half_t, 8> *)&O[bz * 8192000 + (bx * 64 + (tx / 32) * 16 + (tx % 2) * 8 + ((tx % 32) >> 2)) * 2048 + by * 64 + g * 16 + ((tx % 4) >> 1) * 8] =
            *(const tl::vec<tl::half_t, 8> *)O_part_1;
      }
    }
  }
}
