// Sums of rows by shuffles, a histogram by atomics, a transpose through padded shared memory.
#include "tl_cuda.cuh"

extern "C" __global__ void __launch_bounds__(128) row_sum(const float* X, float* Y, int columns) {
  float* partial = (float*)tl::shared_memory();
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += 128) sum += X[blockIdx.x * columns + c];
  for (int delta = 16; delta; delta /= 2) sum += tl::shfl_down(sum, delta);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  tl::sync_threads();  // partial sums are written
  if (threadIdx.x == 0) Y[blockIdx.x] = partial[0] + partial[1] + partial[2] + partial[3];
}

extern "C" __global__ void __launch_bounds__(128) histogram(const uint8_t* X, int* bins, int n) {
  int* own = (int*)tl::shared_memory();
  own[threadIdx.x] = 0;
  tl::sync_threads();  // bins are zero
  for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) tl::atomic_add(own + X[i] % 128, 1);
  tl::sync_threads();  // all is counted
  tl::atomic_add(bins + threadIdx.x, own[threadIdx.x]);
}

extern "C" __global__ void __launch_bounds__(256) transpose(const tl::bfloat16_t* X, tl::bfloat16_t* Y, int rows, int columns) {
  tl::bfloat16_t* tile = (tl::bfloat16_t*)tl::shared_memory();
  for (int i = threadIdx.y; i < 32; i += 8) tile[i * 33 + threadIdx.x] = X[(blockIdx.y * 32 + i) * columns + blockIdx.x * 32 + threadIdx.x];
  tl::sync_threads();  // the tile is whole
  for (int i = threadIdx.y; i < 32; i += 8) Y[(blockIdx.x * 32 + i) * rows + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x * 33 + i];
}

extern "C" __global__ void __launch_bounds__(128) ping_pong(const float* X, float* Y, int steps) {
  // Two halves of the block hand a buffer to each other through named barriers.
  float* slot = (float*)tl::shared_memory();
  int half = threadIdx.x / 64, t = threadIdx.x % 64;
  float sum = 0;
  for (int i = 0; i < steps; ++i) {
    if (half == 0) {
      slot[t] = X[i * 64 + t];
      tl::sync_threads<1, 128>();  // full
      tl::sync_threads<2, 128>();  // empty
    } else {
      tl::sync_threads<1, 128>();
      sum += slot[63 - t];
      tl::sync_threads<2, 128>();
    }
  }
  if (half) Y[t] = sum;
}
