// Sums of rows by shuffles over waves of 64, and a histogram by atomics.
#include "tl_hip.h"

extern "C" __global__ void __launch_bounds__(128) row_sum(const float* X, float* Y, int columns) {
  float* partial = (float*)tl::shared_memory();
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += 128) sum += X[blockIdx.x * columns + c];
  for (int delta = 32; delta; delta /= 2) sum += tl::shfl_xor(sum, delta);
  if (threadIdx.x % 64 == 0) partial[threadIdx.x / 64] = sum;
  tl::sync_threads();  // partial sums are written
  if (threadIdx.x == 0) Y[blockIdx.x] = partial[0] + partial[1];
}

extern "C" __global__ void __launch_bounds__(128) histogram(const uint8_t* X, int* bins, int n) {
  int* own = (int*)tl::shared_memory();
  own[threadIdx.x] = 0;
  tl::sync_threads();  // bins are zero
  for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) tl::atomic_add(own + X[i] % 128, 1);
  tl::sync_threads();  // all is counted
  tl::atomic_add(bins + threadIdx.x, own[threadIdx.x]);
}

extern "C" __global__ void __launch_bounds__(64) reverse_in_wave(const float* X, float* Y) {
  // One wave may hand values over through LDS with no barrier of the block, if it waits for itself.
  float* slot = (float*)tl::shared_memory();
  slot[threadIdx.x] = X[blockIdx.x * 64 + threadIdx.x];
  tl::sync_warp();  // all lanes have written
  Y[blockIdx.x * 64 + threadIdx.x] = slot[63 - threadIdx.x];
}
