// FlashAttention forward, heads of dimension 64: a block has 64 queries of a head, four warps of 16.
#include "tl_cuda.cuh"

static __device__ int swizzled(int row, int chunk) { return row * 64 + ((chunk ^ (row & 7)) * 8); }

static __device__ uint32_t packed(float low, float high) {
  return tl::half_t(low).bits | (uint32_t)tl::half_t(high).bits << 16;
}

static __device__ void load(tl::half_t* to, const tl::half_t* from) {
  for (int i = 0; i < 4; ++i) {
    int c = threadIdx.x + i * 128, row = c / 8, chunk = c % 8;
    tl::cp_async<16>(to + swizzled(row, chunk), from + row * 64 + chunk * 8);
  }
}

extern "C" __global__ void __launch_bounds__(128)
    attention(const tl::half_t* Q, const tl::half_t* K, const tl::half_t* V, tl::half_t* O, int length, float scale) {
  tl::half_t *sQ = (tl::half_t*)tl::shared_memory(), *sK = sQ + 4096, *sV = sK + 8192;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first = blockIdx.x * 64;
  int64_t head = (int64_t)blockIdx.y * length * 64;
  load(sQ, Q + head + first * 64);
  load(sK, K + head);
  load(sV, V + head);
  tl::cp_async_commit();
  float o[8][4], largest[2] = {-1e30f, -1e30f}, sum[2] = {0, 0};
  for (int i = 0; i < 32; ++i) (&o[0][0])[i] = 0;
  uint32_t q[4][4];
  for (int k = 0, stage = 0; k < length; k += 64, stage ^= 1) {
    if (k + 64 < length) {
      load(sK + (stage ^ 1) * 4096, K + head + (k + 64) * 64);
      load(sV + (stage ^ 1) * 4096, V + head + (k + 64) * 64);
      tl::cp_async_commit();
      tl::cp_async_wait<1>();
    } else {
      tl::cp_async_wait<0>();
    }
    tl::sync_threads();  // keys and values have arrived
    if (k == 0)
      for (int i = 0; i < 4; ++i) tl::ldmatrix_x4(q[i], sQ + swizzled(warp * 16 + lane % 16, i * 2 + lane / 16));
    float p[8][4];
    for (int i = 0; i < 32; ++i) (&p[0][0])[i] = 0;
    for (int i = 0; i < 4; ++i) {
      for (int j = 0; j < 4; ++j) {
        uint32_t b[4];
        tl::ldmatrix_x4(b, sK + stage * 4096 + swizzled(j * 16 + lane / 16 * 8 + lane % 8, i * 2 + lane / 8 % 2));
        tl::mma_m16n8k16_f32_f16(p[j * 2], q[i], b);
        tl::mma_m16n8k16_f32_f16(p[j * 2 + 1], q[i], b + 2);
      }
    }
    for (int h = 0; h < 2; ++h) {
      float m = largest[h];
      for (int j = 0; j < 8; ++j)
        for (int x = 0; x < 2; ++x) m = fmaxf(m, p[j][h * 2 + x] *= scale);
      m = fmaxf(m, tl::shfl_xor(m, 1));
      m = fmaxf(m, tl::shfl_xor(m, 2));
      float shrink = exp2f(largest[h] - m);
      largest[h] = m;
      sum[h] *= shrink;
      for (int j = 0; j < 8; ++j)
        for (int x = 0; x < 2; ++x) {
          o[j][h * 2 + x] *= shrink;
          sum[h] += p[j][h * 2 + x] = exp2f(p[j][h * 2 + x] - m);
        }
    }
    for (int i = 0; i < 4; ++i) {
      uint32_t a[4] = {packed(p[i * 2][0], p[i * 2][1]), packed(p[i * 2][2], p[i * 2][3]),
                       packed(p[i * 2 + 1][0], p[i * 2 + 1][1]), packed(p[i * 2 + 1][2], p[i * 2 + 1][3])};
      for (int j = 0; j < 4; ++j) {
        uint32_t b[4];
        tl::ldmatrix_x4_trans(b, sV + stage * 4096 + swizzled(i * 16 + lane % 16, j * 2 + lane / 16));
        tl::mma_m16n8k16_f32_f16(o[j * 2], a, b);
        tl::mma_m16n8k16_f32_f16(o[j * 2 + 1], a, b + 2);
      }
    }
    tl::sync_threads();  // keys and values may be overwritten
  }
  for (int h = 0; h < 2; ++h) {
    float total = sum[h];
    total += tl::shfl_xor(total, 1);
    total += tl::shfl_xor(total, 2);
    for (int j = 0; j < 8; ++j)
      for (int x = 0; x < 2; ++x)
        O[head + (first + warp * 16 + lane / 4 + h * 8) * 64 + j * 8 + lane % 4 * 2 + x] = tl::half_t(o[j][h * 2 + x] / total);
  }
}
