#include "tl_cuda.cuh"

extern "C" __global__ void __launch_bounds__(256) main_kernel_0(
    const tl::half_t *__restrict__ Q,
    const tl::half_t *__restrict__ Q_pe,
    const tl::half_t *__restrict__ KV,
    const tl::half_t *__restrict__ K_pe,
    float *__restrict__ means,
    float *__restrict__ logs) {
  const int bx = blockIdx.x;
  const int by = blockIdx.y;
  const int bz = blockIdx.z;
  const int tx = threadIdx.x;
  tl::half_t *Q_tile = (tl::half_t *)tl::shared_memory();
  tl::half_t *Q_pe_tile = (tl::half_t *)(tl::shared_memory() + 16384);
  tl::half_t *KV_tile = (tl::half_t *)(tl::shared_memory() + 18432);
  tl::half_t *K_pe_tile = (tl::half_t *)(tl::shared_memory() + 83968);
  tl::half_t *weights = (tl::half_t *)(tl::shared_memory() + 92160);
  float *largest_exchange = (float *)(tl::shared_memory() + 93184);
  float *tile_sum_exchange = (float *)(tl::shared_memory() + 93696);
  alignas(16) float acc[32];
  float largest[2];
  float total[2];
  alignas(16) float scores[4];
  float largest_before[2];
  float rescale[2];
  float tile_sum[2];
  // T.copy (line -65)
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    const int Q_tile_place = ((tx % 64) >> 3) * 1024 + c * 256 + (tx / 64) * 64 + (tx % 8) * 8;
    *(tl::vec<tl::half_t, 8> *)&Q_tile[Q_tile_place ^ ((Q_tile_place >> 3) & 56)] =
        *(const tl::vec<tl::half_t, 8> *)&Q[bx * 65536 + (by * 16 + c * 4 + tx / 64) * 512 + (tx % 64) * 8];
  }
  // T.copy (line -64)
  *(tl::vec<tl::half_t, 4> *)&Q_pe_tile[(tx * 4) ^ (((tx * 4) >> 3) & 56)] =
      *(const tl::vec<tl::half_t, 4> *)&Q_pe[bx * 8192 + (by * 16 + tx / 16) * 64 + (tx % 16) * 4];
  // T.fill (line -63)
  #pragma unroll
  for (int c = 0; c < 32; ++c) {
    acc[c] = 0.0f;
  }
  // T.fill (line -62)
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    total[c] = 0.0f;
  }
  // T.fill (line -61)
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    largest[c] = -INFINITY;
  }
  // T.copy (line -58)
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    const int KV_tile_place = ((tx % 64) >> 3) * 2048 + c * 256 + (tx / 64) * 64 + (tx % 8) * 8;
    tl::cp_async<16>(
        &KV_tile[KV_tile_place ^ ((KV_tile_place >> 3) & 56)],
        &KV[bx * 2097152 + (bz * 1024 + c * 4 + tx / 64) * 512 + (tx % 64) * 8]);
  }
  // T.copy (line -57)
  tl::cp_async<16>(
      &K_pe_tile[(tx * 8) ^ (((tx * 8) >> 3) & 56)],
      &K_pe[bx * 262144 + (bz * 1024 + tx / 8) * 64 + (tx % 8) * 8]);
  tl::cp_async_commit();
  for (int k = 0; k < 32; ++k) {
    tl::cp_async_wait<0>();
    tl::sync_threads();
    if (k + 1 < 32) {
      // T.copy (line -58)
      #pragma unroll
      for (int c = 0; c < 8; ++c) {
        const int KV_tile_place =
            ((k + 1) & 1) * 16384 + ((tx % 64) >> 3) * 2048 + c * 256 + (tx / 64) * 64 + (tx % 8) * 8;
        tl::cp_async<16>(
            &KV_tile[KV_tile_place ^ ((KV_tile_place >> 3) & 56)],
            &KV[bx * 2097152 + (bz * 1024 + k * 32 + c * 4 + tx / 64 + 32) * 512 + (tx % 64) * 8]);
      }
      // T.copy (line -57)
      const int K_pe_tile_place = tx * 8;
      const int K_pe_tile_at = K_pe_tile_place ^ ((K_pe_tile_place >> 3) & 56);
      tl::cp_async<16>(
          &K_pe_tile[K_pe_tile_at + ((k + 1) & 1) * 2048],
          &K_pe[bx * 262144 + (bz * 1024 + k * 32 + tx / 8 + 32) * 64 + (tx % 8) * 8]);
    }
    tl::cp_async_commit();
    alignas(16) tl::half_t Q_tile_frag[8];
    alignas(8) tl::half_t KV_tile_frag[4];
    // T.gemm (line -56)
    const int Q_tile_place = (tx % 16) * 64 + ((tx % 32) >> 4) * 8;
    const int Q_tile_at = Q_tile_place ^ ((Q_tile_place >> 3) & 56);
    const int KV_tile_place = ((tx % 128) >> 5) * 512 + (tx % 8) * 64 + ((tx % 16) >> 3) * 8;
    const int KV_tile_at = KV_tile_place ^ ((KV_tile_place >> 3) & 56);
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      scores[r] = 0.0f;
    }
    #pragma unroll
    for (int ki = 0; ki < 32; ++ki) {
      tl::ldmatrix_x4(Q_tile_frag, &Q_tile[(Q_tile_at ^ ((ki & 3) * 16)) + (ki >> 2) * 1024]);
      tl::ldmatrix_x2(KV_tile_frag, &KV_tile[(KV_tile_at ^ ((ki & 3) * 16)) + (k & 1) * 16384 + (ki >> 2) * 2048]);
      tl::mma_m16n8k16_f32_f16(scores, Q_tile_frag, KV_tile_frag);
    }
    alignas(16) tl::half_t Q_pe_tile_frag[8];
    alignas(8) tl::half_t K_pe_tile_frag[4];
    // T.gemm (line -55)
    const int Q_pe_tile_place = (tx % 16) * 64 + ((tx % 32) >> 4) * 8;
    const int Q_pe_tile_at = Q_pe_tile_place ^ ((Q_pe_tile_place >> 3) & 56);
    const int K_pe_tile_place = ((tx % 128) >> 5) * 512 + (tx % 8) * 64 + ((tx % 16) >> 3) * 8;
    const int K_pe_tile_at = K_pe_tile_place ^ ((K_pe_tile_place >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 4; ++ki) {
      tl::ldmatrix_x4(Q_pe_tile_frag, &Q_pe_tile[Q_pe_tile_at ^ (ki * 16)]);
      tl::ldmatrix_x2(K_pe_tile_frag, &K_pe_tile[(K_pe_tile_at ^ (ki * 16)) + (k & 1) * 2048]);
      tl::mma_m16n8k16_f32_f16(scores, Q_pe_tile_frag, K_pe_tile_frag);
    }
    // T.Parallel (line -54)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int j = ((tx % 128) >> 5) * 8 + (tx % 4) * 2 + (c & 1);
      scores[c] =
          min(bz * 1024, 4096) + k * 32 + j < min(min(bz * 1024, 4096) + 1024, 4096) ? scores[c] * 0.060112294f : -INFINITY;
    }
    // T.copy (line -52)
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      largest_before[c] = largest[c];
    }
    float largest_part[2];
    // T.reduce_max (line -51)
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      largest_part[r] = -INFINITY;
    }
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      largest_part[s >> 1] = fmaxf(scores[s], largest_part[s >> 1]);
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
    if ((tx & 3) == 0) {
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        largest_exchange[r * 64 + (tx >> 2)] = largest_part[r];
      }
    }
    tl::sync_threads();
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      largest_part[r] =
          fmaxf(largest_exchange[r * 64 + (((tx & -97) >> 2) ^ 24)], fmaxf(largest_exchange[r * 64 + (((tx & -97) >> 2) ^ 16)], fmaxf(largest_exchange[r * 64 + (((tx & -97) >> 2) ^ 8)], largest_exchange[r * 64 + ((tx & -97) >> 2)])));
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      largest[r] = fmaxf(largest[r], largest_part[r]);
    }
    // T.Parallel (line -50)
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      rescale[c] = exp2f(largest_before[c] - largest[c]);
    }
    // T.Parallel (line -48)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      scores[c] = exp2f(scores[c] - largest[c >> 1]);
    }
    float tile_sum_part[2];
    // T.reduce_sum (line -46)
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      tile_sum_part[r] = 0.0f;
    }
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      tile_sum_part[s >> 1] += scores[s];
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
    if ((tx & 3) == 0) {
      #pragma unroll
      for (int r = 0; r < 2; ++r) {
        tile_sum_exchange[r * 64 + (tx >> 2)] = tile_sum_part[r];
      }
    }
    tl::sync_threads();
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      tile_sum_part[r] =
          tile_sum_exchange[r * 64 + ((tx & -97) >> 2)] + tile_sum_exchange[r * 64 + (((tx & -97) >> 2) ^ 8)] + tile_sum_exchange[r * 64 + (((tx & -97) >> 2) ^ 16)] + tile_sum_exchange[r * 64 + (((tx & -97) >> 2) ^ 24)];
    }
    #pragma unroll
    for (int r = 0; r < 2; ++r) {
      tile_sum[r] = tile_sum_part[r];
    }
    // T.Parallel (line -45)
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      total[c] = total[c] * rescale[c] + tile_sum[c];
    }
    // T.Parallel (line -43)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      acc[c] *= rescale[(c & 3) >> 1];
    }
    // T.copy (line -40)
    const int weights_place = ((tx % 32) >> 2) * 32 + (tx / 32) * 8 + (tx % 4) * 2;
    const int weights_at = weights_place ^ ((weights_place >> 3) & 24);
    #pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (tx < 128) {
        tl::vec<tl::half_t, 2> weights_row;
        #pragma unroll
        for (int lane = 0; lane < 2; ++lane) {
          weights_row[lane] = tl::half_t(scores[c * 2 + lane]);
        }
        *(tl::vec<tl::half_t, 2> *)&weights[weights_at + c * 256] = weights_row;
      }
    }
    alignas(16) tl::half_t weights_frag[8];
    alignas(16) tl::half_t KV_tile_frag_1[32];
    // T.gemm (line -39)
    const int weights_place_1 = (tx % 16) * 32 + ((tx % 32) >> 4) * 8;
    const int weights_at_1 = weights_place_1 ^ ((weights_place_1 >> 3) & 24);
    const int KV_tile_place_1 = (tx / 32) * 2048 + (tx % 16) * 64 + ((tx % 32) >> 4) * 8;
    const int KV_tile_at_1 = KV_tile_place_1 ^ ((KV_tile_place_1 >> 3) & 56);
    tl::sync_threads();
    #pragma unroll
    for (int ki = 0; ki < 2; ++ki) {
      tl::ldmatrix_x4(weights_frag, &weights[weights_at_1 ^ (ki * 16)]);
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        tl::ldmatrix_x4_trans(&KV_tile_frag_1[j * 8], &KV_tile[(KV_tile_at_1 ^ (j * 16)) + (k & 1) * 16384 + ki * 1024]);
      }
      #pragma unroll
      for (int j = 0; j < 8; ++j) {
        tl::mma_m16n8k16_f32_f16(&acc[j * 4], weights_frag, &KV_tile_frag_1[j * 4]);
      }
    }
  }
  // T.Parallel (line 21)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    alignas(8) float means_part[2];
    #pragma unroll
    for (int u = 0; u < 2; ++u) {
      means_part[u] = total[c & 1] > 0.0f ? acc[c * 2 + u] / total[c & 1] : 0.0f;
    }
    *(tl::vec<float, 2> *)&means[bx * 262144 + (by * 16 + (c & 1) * 8 + ((tx % 32) >> 2)) * 2048 + bz * 512 + (tx / 32) * 64 + (c >> 1) * 8 + (tx % 4) * 2] =
        *(const tl::vec<float, 2> *)means_part;
  }
  // T.Parallel (line 23)
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    const int i_6 = c * 8 + ((tx % 32) >> 2);
    if (tx == ((tx % 32) >> 2) * 4) {
      logs[bx * 512 + (by * 16 + i_6) * 4 + bz] = largest[c] + log2f(total[c]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(128) main_kernel_1(
    tl::half_t *__restrict__ Output,
    const float *__restrict__ means,
    const float *__restrict__ logs) {
  const int bx_1 = blockIdx.x;
  const int by_1 = blockIdx.y;
  const int tx_1 = threadIdx.x;
  float *weights_1 = (float *)tl::shared_memory();
  float *weights_1_tile_rows = (float *)(tl::shared_memory() + 128);
  float *weights_1_tile_rows_1 = (float *)(tl::shared_memory() + 256);
  float largest_1;
  float total_1;
  float acc_1[4];
  // T.copy (line 31)
  if (tx_1 < 4) {
    weights_1[tx_1] = logs[bx_1 * 512 + by_1 * 4 + tx_1];
  }
  float weights_1_tile;
  // T.copy (line 32)
  if (tx_1 < 4) {
    weights_1_tile = weights_1[tx_1];
  }
  float largest_1_part;
  // T.reduce_max (line 32)
  if (tx_1 < 4) {
    weights_1_tile_rows[tx_1] = weights_1_tile;
  }
  largest_1_part = -INFINITY;
  tl::sync_threads();
  for (int k = 0; k < 4; ++k) {
    largest_1_part = fmaxf(weights_1_tile_rows[k], largest_1_part);
  }
  largest_1 = largest_1_part;
  // T.Parallel (line 33)
  if (tx_1 < 4) {
    weights_1[tx_1] = exp2f(weights_1[tx_1] - largest_1);
  }
  float weights_1_tile_1;
  // T.copy (line 35)
  if (tx_1 < 4) {
    weights_1_tile_1 = weights_1[tx_1];
  }
  float total_1_part;
  // T.reduce_sum (line 35)
  if (tx_1 < 4) {
    weights_1_tile_rows_1[tx_1] = weights_1_tile_1;
  }
  total_1_part = 0.0f;
  tl::sync_threads();
  for (int k = 0; k < 4; ++k) {
    total_1_part += weights_1_tile_rows_1[k];
  }
  total_1 = total_1_part;
  // T.fill (line 36)
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    acc_1[c] = 0.0f;
  }
  for (int s_1 = 0; s_1 < 4; ++s_1) {
    alignas(16) float means_part[4];
    // T.Parallel (line 38)
    *(tl::vec<float, 4> *)means_part =
        *(const tl::vec<float, 4> *)&means[bx_1 * 262144 + by_1 * 2048 + s_1 * 512 + tx_1 * 4];
    #pragma unroll
    for (int u = 0; u < 4; ++u) {
      acc_1[u] += means_part[u] * weights_1[s_1] / total_1;
    }
  }
  // T.copy (line 40)
  tl::vec<tl::half_t, 4> Output_row;
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    Output_row[lane] = tl::half_t(acc_1[lane]);
  }
  *(tl::vec<tl::half_t, 4> *)&Output[bx_1 * 65536 + by_1 * 512 + tx_1 * 4] = Output_row;
}
