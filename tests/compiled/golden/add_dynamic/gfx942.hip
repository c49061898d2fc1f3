#include "tl_hip.h"

extern "C" __global__ void __launch_bounds__(128) add_kernel(
    const float *__restrict__ A,
    const float *__restrict__ B,
    float *__restrict__ C,
    int n) {
  const int bx = blockIdx.x;
  const int tx = threadIdx.x;
  alignas(8) float C_part[2];
  alignas(8) float A_part[2];
  alignas(8) float B_part[2];
  // T.Parallel (line 6)
  *(tl::vec<float, 2> *)A_part = *(const tl::vec<float, 2> *)&A[bx * 256 + tx * 2];
  *(tl::vec<float, 2> *)B_part = *(const tl::vec<float, 2> *)&B[bx * 256 + tx * 2];
  #pragma unroll
  for (int u = 0; u < 2; ++u) {
    C_part[u] = A_part[u] + B_part[u];
  }
  *(tl::vec<float, 2> *)&C[bx * 256 + tx * 2] = *(const tl::vec<float, 2> *)C_part;
}
