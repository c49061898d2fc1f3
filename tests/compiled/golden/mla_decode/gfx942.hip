#include "tl_hip.h"

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
  tl::half_t *K_pe_tile = (tl::half_t *)(tl::shared_memory() + 51200);
  tl::half_t *weights = (tl::half_t *)(tl::shared_memory() + 55296);
  alignas(16) float acc[32];
  float largest;
  float total;
  alignas(16) float scores[4];
  float largest_before;
  float rescale;
  float tile_sum;
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
  total = 0.0f;
  // T.fill (line -61)
  largest = -INFINITY;
  // T.copy (line -58)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &KV_tile[c * 512 + (tx / 64) * 64 * 2],
        &KV[bx * 2097152 + (bz * 1024 + ((((c * 512 + tx * 2) ^ (((c * 512 + tx * 2) >> 3) & 56)) & 1023) >> 6)) * 512 + ((((c * 512 + tx * 2) ^ (((c * 512 + tx * 2) >> 3) & 56)) & 8191) >> 10) * 64 + (((c * 512 + tx * 2) ^ (((c * 512 + tx * 2) >> 3) & 56)) & 63)]);
  }
  // T.copy (line -57)
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    tl::load_to_lds<4>(
        &K_pe_tile[c * 512 + (tx / 64) * 64 * 2],
        &K_pe[bx * 262144 + (bz * 1024 + ((((c * 512 + tx * 2) ^ (((c * 512 + tx * 2) >> 3) & 56)) & 1023) >> 6)) * 64 + (((c * 512 + tx * 2) ^ (((c * 512 + tx * 2) >> 3) & 56)) & 63)]);
  }
  for (int k = 0; k < 64; ++k) {
    tl::wait_loads<0>();
    tl::sync_threads();
    if (k + 1 < 64) {
      // T.copy (line -58)
      #pragma unroll
      for (int c = 0; c < 16; ++c) {
        tl::load_to_lds<4>(
            &KV_tile[((k + 1) & 1) * 8192 + c * 512 + (tx / 64) * 64 * 2],
            &KV[bx * 2097152 + (bz * 1024 + k * 16 + ((((c * 512 + tx * 2) ^ (((c * 512 + tx * 2) >> 3) & 56)) & 1023) >> 6) + 16) * 512 + ((((c * 512 + tx * 2) ^ (((c * 512 + tx * 2) >> 3) & 56)) & 8191) >> 10) * 64 + (((c * 512 + tx * 2) ^ (((c * 512 + tx * 2) >> 3) & 56)) & 63)]);
      }
      // T.copy (line -57)
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        tl::load_to_lds<4>(
            &K_pe_tile[((k + 1) & 1) * 1024 + c * 512 + (tx / 64) * 64 * 2],
            &K_pe[bx * 262144 + (bz * 1024 + k * 16 + ((((c * 512 + tx * 2) ^ (((c * 512 + tx * 2) >> 3) & 56)) & 1023) >> 6) + 16) * 64 + (((c * 512 + tx * 2) ^ (((c * 512 + tx * 2) >> 3) & 56)) & 63)]);
      }
    }
    alignas(8) tl::half_t Q_tile_frag[4];
    alignas(8) tl::half_t KV_tile_frag[4];
    // T.gemm (line -56)
    const int Q_tile_place = (tx % 16) * 64 + ((tx % 64) >> 4) * 4;
    const int Q_tile_at = Q_tile_place ^ ((Q_tile_place >> 3) & 56);
    #pragma unroll
    for (int r = 0; r < 4; ++r) {
      scores[r] = 0.0f;
    }
    #pragma unroll
    for (int ki = 0; ki < 32; ++ki) {
      *(tl::vec<tl::half_t, 4> *)Q_tile_frag =
          *(const tl::vec<tl::half_t, 4> *)&Q_tile[(Q_tile_at ^ ((ki & 3) * 16)) + (ki >> 2) * 1024];
      *(tl::vec<tl::half_t, 4> *)KV_tile_frag =
          *(const tl::vec<tl::half_t, 4> *)&KV_tile[(Q_tile_at ^ ((ki & 3) * 16)) + (k & 1) * 8192 + (ki >> 2) * 1024];
      tl::mfma_16x16x16_f32_f16(scores, KV_tile_frag, Q_tile_frag);
    }
    alignas(8) tl::half_t Q_pe_tile_frag[4];
    alignas(8) tl::half_t K_pe_tile_frag[4];
    // T.gemm (line -55)
    const int Q_pe_tile_place = (tx % 16) * 64 + ((tx % 64) >> 4) * 4;
    const int Q_pe_tile_at = Q_pe_tile_place ^ ((Q_pe_tile_place >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 4; ++ki) {
      *(tl::vec<tl::half_t, 4> *)Q_pe_tile_frag =
          *(const tl::vec<tl::half_t, 4> *)&Q_pe_tile[Q_pe_tile_at ^ (ki * 16)];
      *(tl::vec<tl::half_t, 4> *)K_pe_tile_frag =
          *(const tl::vec<tl::half_t, 4> *)&K_pe_tile[(Q_pe_tile_at ^ (ki * 16)) + (k & 1) * 1024];
      tl::mfma_16x16x16_f32_f16(scores, K_pe_tile_frag, Q_pe_tile_frag);
    }
    // T.Parallel (line -54)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int j = ((tx % 64) >> 4) * 4 + c;
      scores[c] =
          min(bz * 1024, 4096) + k * 16 + j < min(min(bz * 1024, 4096) + 1024, 4096) ? scores[c] * 0.060112294f : -INFINITY;
    }
    // T.copy (line -52)
    largest_before = largest;
    float largest_part;
    // T.reduce_max (line -51)
    largest_part = -INFINITY;
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      largest_part = fmaxf(scores[s], largest_part);
    }
    const float largest_other = tl::shfl_xor(largest_part, 16);
    largest_part = fmaxf(largest_other, largest_part);
    const float largest_other_1 = tl::shfl_xor(largest_part, 32);
    largest_part = fmaxf(largest_other_1, largest_part);
    largest = fmaxf(largest, largest_part);
    // T.Parallel (line -50)
    rescale = exp2f(largest_before - largest);
    // T.Parallel (line -48)
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      scores[c] = exp2f(scores[c] - largest);
    }
    float tile_sum_part;
    // T.reduce_sum (line -46)
    tile_sum_part = 0.0f;
    #pragma unroll
    for (int s = 0; s < 4; ++s) {
      tile_sum_part += scores[s];
    }
    const float tile_sum_other = tl::shfl_xor(tile_sum_part, 16);
    tile_sum_part += tile_sum_other;
    const float tile_sum_other_1 = tl::shfl_xor(tile_sum_part, 32);
    tile_sum_part += tile_sum_other_1;
    tile_sum = tile_sum_part;
    // T.Parallel (line -45)
    total = total * rescale + tile_sum;
    // T.Parallel (line -43)
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      acc[c] *= rescale;
    }
    // T.copy (line -40)
    if (tx < 64) {
      tl::vec<tl::half_t, 4> weights_row;
      #pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        weights_row[lane] = tl::half_t(scores[lane]);
      }
      const int weights_place = (tx % 16) * 16 + (tx / 16) * 4;
      *(tl::vec<tl::half_t, 4> *)&weights[weights_place ^ ((weights_place >> 3) & 8)] = weights_row;
    }
    alignas(8) tl::half_t weights_frag[4];
    alignas(16) tl::half_t KV_tile_frag_1[32];
    // T.gemm (line -39)
    const int KV_tile_place = (tx / 64) * 2048 + ((tx % 64) >> 4) * 256 + tx % 16;
    const int KV_tile_at = KV_tile_place ^ ((KV_tile_place >> 3) & 56);
    tl::sync_threads();
    const int weights_place = (tx % 16) * 16 + ((tx % 64) >> 4) * 4;
    *(tl::vec<tl::half_t, 4> *)weights_frag =
        *(const tl::vec<tl::half_t, 4> *)&weights[weights_place ^ ((weights_place >> 3) & 8)];
    #pragma unroll
    for (int b = 0; b < 8; ++b) {
      #pragma unroll
      for (int r = 0; r < 4; ++r) {
        KV_tile_frag_1[b * 4 + r] =
            KV_tile[(KV_tile_at ^ (((r * 64 + (b & 3) * 16) ^ (((r * 64 + (b & 3) * 16) >> 3) & 56)) & 40)) + (((r * 64 + (b & 3) * 16) ^ (((r * 64 + (b & 3) * 16) >> 3) & 56)) & 208) + (k & 1) * 8192 + (b >> 2) * 1024];
      }
    }
    #pragma unroll
    for (int j = 0; j < 8; ++j) {
      tl::mfma_16x16x16_f32_f16(&acc[j * 4], &KV_tile_frag_1[j * 4], weights_frag);
    }
  }
  // T.Parallel (line 21)
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    alignas(16) float means_part[4];
    #pragma unroll
    for (int u = 0; u < 4; ++u) {
      means_part[u] = total > 0.0f ? acc[c * 4 + u] / total : 0.0f;
    }
    *(tl::vec<float, 4> *)&means[bx * 262144 + (by * 16 + tx % 16) * 2048 + bz * 512 + (tx / 64) * 128 + c * 16 + ((tx % 64) >> 4) * 4] =
        *(const tl::vec<float, 4> *)means_part;
  }
  // T.Parallel (line 23)
  const int i_6 = tx % 16;
  if (tx < 16) {
    logs[bx * 512 + (by * 16 + i_6) * 4 + bz] = largest + log2f(total);
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
