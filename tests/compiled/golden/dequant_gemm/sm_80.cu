#include "tl_cuda.cuh"

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
  uint8_t B_packed[32];
  alignas(16) tl::half_t B_decoded[64];
  alignas(16) float acc[64];
  // T.fill (line 10)
  #pragma unroll
  for (int c = 0; c < 64; ++c) {
    acc[c] = 0.0f;
  }
  // T.copy (line 12)
  const int A_tile_place = tx * 8;
  const int A_tile_at = A_tile_place ^ ((A_tile_place >> 3) & 56);
  #pragma unroll
  for (int c = 0; c < 4; ++c) {
    tl::cp_async<16>(&A_tile[A_tile_at + c * 1024], &A[(by * 64 + c * 16 + tx / 8) * 4096 + (tx % 8) * 8]);
  }
  // T.copy (line 13)
  const int B_tile_place = tx * 16;
  const int B_tile_at = B_tile_place ^ ((B_tile_place >> 3) & 16);
  #pragma unroll
  for (int c = 0; c < 2; ++c) {
    tl::cp_async<16>(&B_tile[B_tile_at + c * 2048], &B[(bx * 128 + c * 64 + tx / 2) * 2048 + (tx % 2) * 16]);
  }
  tl::cp_async_commit();
  for (int k = 0; k < 64; ++k) {
    tl::cp_async_wait<0>();
    tl::sync_threads();
    if (k + 1 < 64) {
      // T.copy (line 12)
      const int A_tile_place_1 = tx * 8;
      const int A_tile_at_1 = A_tile_place_1 ^ ((A_tile_place_1 >> 3) & 56);
      #pragma unroll
      for (int c = 0; c < 4; ++c) {
        tl::cp_async<16>(
            &A_tile[A_tile_at_1 + ((k + 1) & 1) * 4096 + c * 1024],
            &A[(by * 64 + c * 16 + tx / 8) * 4096 + k * 64 + (tx % 8) * 8 + 64]);
      }
      // T.copy (line 13)
      const int B_tile_place_1 = tx * 16;
      const int B_tile_at_1 = B_tile_place_1 ^ ((B_tile_place_1 >> 3) & 16);
      #pragma unroll
      for (int c = 0; c < 2; ++c) {
        tl::cp_async<16>(
            &B_tile[B_tile_at_1 + ((k + 1) & 1) * 4096 + c * 2048],
            &B[(bx * 128 + c * 64 + tx / 2) * 2048 + k * 32 + (tx % 2) * 16 + 32]);
      }
    }
    tl::cp_async_commit();
    // T.copy (line 14)
    const int B_tile_place_1 = (tx / 32) * 1024 + ((tx % 32) >> 2) * 32 + tx % 4;
    const int B_tile_at_1 = B_tile_place_1 ^ ((B_tile_place_1 >> 3) & 16);
    #pragma unroll
    for (int c = 0; c < 32; ++c) {
      const int i = (tx / 32) * 32 + (c >> 4) * 16 + (c & 1) * 8 + ((tx % 32) >> 2);
      B_packed[c] =
          B_tile[(B_tile_at_1 ^ ((((c & 15) >> 1) * 4) & 16)) + ((((c & 15) >> 1) * 4) & 12) + (k & 1) * 4096 + (c >> 4) * 512 + (c & 1) * 256];
    }
    // T.Parallel (line 15)
    #pragma unroll
    for (int c = 0; c < 64; ++c) {
      const int j = ((c & 31) >> 2) * 8 + (tx % 4) * 2 + (c & 1);
      B_decoded[c] =
          bit_cast<tl::half_t>((uint16_t)(((((int)B_packed[c >> 1] >> ((j & 1) * 4)) & 15 & 8) << 12) | ((((int)B_packed[c >> 1] >> ((j & 1) * 4)) & 15 & 7) << 9))) * tl::half_t(16384.0f);
    }
    alignas(16) tl::half_t A_tile_frag[32];
    // T.gemm (line 17)
    const int A_tile_place_1 = ((tx % 32) >> 4) * 512 + (tx % 8) * 64 + ((tx % 16) >> 3) * 8;
    const int A_tile_at_1 = A_tile_place_1 ^ ((A_tile_place_1 >> 3) & 56);
    #pragma unroll
    for (int ki = 0; ki < 4; ++ki) {
      #pragma unroll
      for (int j = 0; j < 4; ++j) {
        tl::ldmatrix_x4(&A_tile_frag[j * 8], &A_tile[(A_tile_at_1 ^ (ki * 16)) + (k & 1) * 4096 + j * 1024]);
      }
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        #pragma unroll
        for (int j = 0; j < 8; ++j) {
          tl::mma_m16n8k16_f32_f16(&acc[(i * 8 + j) * 4], &B_decoded[(i * 4 + ki) * 8], &A_tile_frag[j * 4]);
        }
      }
    }
  }
  alignas(16) tl::half_t Ct_part[8];
  // T.copy (line 18)
  #pragma unroll
  for (int g = 0; g < 8; ++g) {
    #pragma unroll
    for (int u = 0; u < 8; ++u) {
      Ct_part[u] = tl::half_t(acc[g * 8 + u]);
    }
    tl::transpose_quad(Ct_part);
    *(tl::vec<tl::half_t, 8> *)&Ct[(bx * 128 + (tx / 32) * 32 + (g >> 2) * 16 + (tx % 2) * 8 + ((tx % 32) >> 2)) * 4096 + by * 64 + (g & 3) * 16 + ((tx % 4) >> 1) * 8] =
        *(const tl::vec<tl::half_t, 8> *)Ct_part;
  }
}
