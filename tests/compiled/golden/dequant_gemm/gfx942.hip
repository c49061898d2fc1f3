#include "tl_hip.h"

// The same bits as another type.
template <class To, class From>
TL_DEVICE To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the width");
  To result;
  memcpy(&result, &value, sizeof(To));
  return result;
}

extern "C" __global__ void __launch_bounds__(128) main_kernel(
    const tl::half_t *__restrict__ A,
    const uint8_t *__restrict__ B,
    tl::half_t *__restrict__ Ct) {
  const int bx = blockIdx.x;
  const int by = blockIdx.y;
  const int tx = threadIdx.x;
  tl::half_t *A_tile = (tl::half_t *)tl::shared_memory();
  uint8_t *B_tile = (uint8_t *)(tl::shared_memory() + 16384);
  alignas(16) uint8_t B_packed[32];
  alignas(16) tl::half_t B_decoded[64];
  alignas(16) float acc[64];
  // T.fill (line 10)
  #pragma unroll
  for (int c = 0; c < 64; ++c) {
    acc[c] = 0.0f;
  }
  // T.copy (line 12)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::load_to_lds<4>(
        &A_tile[c * 256 + (tx / 64) * 64 * 2],
        &A[(by * 64 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 4095) >> 6)) * 4096 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 63)]);
  }
  // T.copy (line 13)
  #pragma unroll
  for (int c = 0; c < 8; ++c) {
    tl::load_to_lds<4>(
        &B_tile[c * 512 + (tx / 64) * 64 * 4],
        &B[(bx * 128 + ((((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 16)) & 4095) >> 5)) * 2048 + (((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 16)) & 31)]);
  }
  for (int k = 0; k < 64; ++k) {
    tl::wait_loads<0>();
    tl::sync_threads();
    if (k + 1 < 64) {
      // T.copy (line 12)
      #pragma unroll
      for (int c = 0; c < 16; ++c) {
        tl::load_to_lds<4>(
            &A_tile[((k + 1) & 1) * 4096 + c * 256 + (tx / 64) * 64 * 2],
            &A[(by * 64 + ((((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 4095) >> 6)) * 4096 + k * 64 + (((c * 256 + tx * 2) ^ (((c * 256 + tx * 2) >> 3) & 56)) & 63) + 64]);
      }
      // T.copy (line 13)
      #pragma unroll
      for (int c = 0; c < 8; ++c) {
        tl::load_to_lds<4>(
            &B_tile[((k + 1) & 1) * 4096 + c * 512 + (tx / 64) * 64 * 4],
            &B[(bx * 128 + ((((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 16)) & 4095) >> 5)) * 2048 + k * 32 + (((c * 512 + tx * 4) ^ (((c * 512 + tx * 4) >> 3) & 16)) & 31) + 32]);
      }
    }
    // T.copy (line 14)
    const int B_tile_place = (tx / 64) * 2048 + (tx % 32) * 32 + ((tx % 64) >> 5) * 2;
    const int B_tile_at = B_tile_place ^ ((B_tile_place >> 3) & 16);
    #pragma unroll
    for (int c = 0; c < 16; ++c) {
      *(tl::vec<uint8_t, 2> *)&B_packed[c * 2] =
          *(const tl::vec<uint8_t, 2> *)&B_tile[(B_tile_at ^ (((c & 7) * 4) & 16)) + (((c & 7) * 4) & 12) + (k & 1) * 4096 + (c >> 3) * 1024];
    }
    // T.Parallel (line 15)
    #pragma unroll
    for (int c = 0; c < 64; ++c) {
      const int j = ((c & 31) >> 2) * 8 + ((tx % 64) >> 5) * 4 + (c & 3);
      B_decoded[c] =
          bit_cast<tl::half_t>((uint16_t)(((((int)B_packed[c >> 1] >> ((j & 1) * 4)) & 15 & 8) << 12) | ((((int)B_packed[c >> 1] >> ((j & 1) * 4)) & 15 & 7) << 9))) * tl::half_t(16384.0f);
    }
    alignas(16) tl::half_t A_tile_frag[8];
    // T.gemm (line 17)
    const int A_tile_place = (tx % 32) * 64 + ((tx % 64) >> 5) * 4;
    const int A_tile_at = A_tile_place ^ ((A_tile_place >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 8; ++ki) {
      #pragma unroll
      for (int b = 0; b < 2; ++b) {
        *(tl::vec<tl::half_t, 4> *)&A_tile_frag[b * 4] =
            *(const tl::vec<tl::half_t, 4> *)&A_tile[(A_tile_at ^ (ki * 8)) + (k & 1) * 4096 + b * 2048];
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 2; ++j) {
          tl::mfma_32x32x8_f32_f16(&acc[(i * 2 + j) * 16], &A_tile_frag[j * 4], &B_decoded[(i * 8 + ki) * 4]);
        }
      }
    }
  }
  // T.copy (line 18)
  #pragma unroll
  for (int c = 0; c < 16; ++c) {
    tl::vec<tl::half_t, 4> Ct_row;
    #pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      Ct_row[lane] = tl::half_t(acc[c * 4 + lane]);
    }
    *(tl::vec<tl::half_t, 4> *)&Ct[(bx * 128 + (tx / 64) * 64 + (c >> 3) * 32 + tx % 32) * 4096 + by * 64 + (c & 7) * 8 + ((tx % 64) >> 5) * 4] =
        Ct_row;
  }
}
