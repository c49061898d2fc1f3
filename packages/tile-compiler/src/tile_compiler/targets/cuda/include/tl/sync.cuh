// Barriers (PTX ISA, "Parallel Synchronization and Communication Instructions: bar.sync, bar.arrive, bar.warp.sync").
#pragma once

namespace tl {

TL_DEVICE void sync_threads() { __syncthreads(); }

// Barrier `barrier` (1 to 15; 0 is sync_threads()'s) of the `count` threads that call it, whole warps.
template <int barrier, int count>
TL_DEVICE void sync_threads() {
  static_assert(barrier >= 0 && barrier < 16, "a block has 16 barriers");
  static_assert(count > 0 && count % 32 == 0, "whole warps meet at a barrier");
  asm volatile("bar.sync %0, %1;" ::"n"(barrier), "n"(count) : "memory");
}

// The same for warps that need not wait: they count as having come, and what they wrote is visible to those who wait.
template <int barrier, int count>
TL_DEVICE void arrive_threads() {
  static_assert(barrier >= 0 && barrier < 16, "a block has 16 barriers");
  static_assert(count > 0 && count % 32 == 0, "whole warps meet at a barrier");
  asm volatile("bar.arrive %0, %1;" ::"n"(barrier), "n"(count) : "memory");
}

// Both with a barrier that is known at run time only.
TL_DEVICE void sync_barrier(int barrier, int count) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(count) : "memory"); }
TL_DEVICE void arrive_barrier(int barrier, int count) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(count) : "memory");
}

TL_DEVICE void sync_warp() { __syncwarp(); }

// Barrier of all blocks of a cooperative launch, which count each other in `arrived`: 0 at first, as many as there are blocks
// more after each barrier. It may wrap around only after 2^32 arrivals in one launch.
TL_DEVICE void sync_grid(uint32_t* arrived) {
#if TL_HAS(900)
  asm volatile("fence.proxy.async;" ::: "memory");  // what this thread has stored is there for others' bulk copies too
#endif
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
    uint32_t blocks = gridDim.x * gridDim.y * gridDim.z, come;
    __threadfence();
    uint32_t all = (atomicAdd(arrived, 1u) / blocks + 1) * blocks;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(come) : "l"(arrived) : "memory");
    } while (come < all);
    __threadfence();
  }
  __syncthreads();
}

// Orders a thread's accesses to memory for the whole device; the accesses of other threads do not wait.
TL_DEVICE void fence() { __threadfence(); }

}  // namespace tl
