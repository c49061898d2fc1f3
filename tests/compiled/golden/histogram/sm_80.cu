#include "tl_cuda.cuh"

extern "C" __global__ void __launch_bounds__(128) main_kernel_0(int *__restrict__ counts) {
  const int tx = threadIdx.x;
  alignas(8) int counts_part[2];
  // T.fill (line 4)
  #pragma unroll
  for (int u = 0; u < 2; ++u) {
    counts_part[u] = 0;
  }
  *(tl::vec<int, 2> *)&counts[tx * 2] = *(const tl::vec<int, 2> *)counts_part;
}

extern "C" __global__ void __launch_bounds__(128) main_kernel_1(
    const int *__restrict__ values,
    int *__restrict__ counts) {
  const int bx_1 = blockIdx.x;
  const int tx_1 = threadIdx.x;
  int *local = (int *)tl::shared_memory();
  alignas(8) int local_part[2];
  // T.fill (line 8)
  #pragma unroll
  for (int u = 0; u < 2; ++u) {
    local_part[u] = 0;
  }
  *(tl::vec<int, 2> *)&local[tx_1 * 2] = *(const tl::vec<int, 2> *)local_part;
  alignas(8) int values_part[2];
  // T.Parallel (line 9)
  const int i = tx_1 * 2;
  *(tl::vec<int, 2> *)values_part = *(const tl::vec<int, 2> *)&values[bx_1 * 256 + tx_1 * 2];
  tl::sync_threads();
  #pragma unroll
  for (int u = 0; u < 2; ++u) {
    if (bx_1 * 256 + i + u < 1048576) {
      values_part[u] >= 0 && values_part[u] < 256 ? tl::atomic_add(&local[values_part[u]], 1) : 0;
    }
  }
  alignas(8) int local_part_1[2];
  // T.atomic (line 13)
  const int i_1 = tx_1 * 2;
  tl::sync_threads();
  *(tl::vec<int, 2> *)local_part_1 = *(const tl::vec<int, 2> *)&local[tx_1 * 2];
  #pragma unroll
  for (int u = 0; u < 2; ++u) {
    tl::atomic_add(&counts[i_1 + u], local_part_1[u]);
  }
}
