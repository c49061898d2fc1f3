// Clusters: blocks that run at the same time and read each other's shared memory (PTX ISA, "barrier.cluster", "mapa",
// "Special Registers: %cluster_ctarank"); one lane of a warp ("elect.sync"); dependent launches ("griddepcontrol").
#pragma once

namespace tl {

#if TL_HAS(900)

// This block's number in its cluster, and how many there are.
TL_DEVICE uint32_t cluster_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
TL_DEVICE uint32_t cluster_size() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
  return r;
}

// Barrier of all threads of the cluster in two halves: arrive releases earlier accesses, wait acquires the others'.
TL_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
TL_DEVICE void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
TL_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
TL_DEVICE void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

// The same place in the shared memory of block `rank` of the cluster: ordinary loads, stores and atomics work on it. That
// block must have started (a cluster barrier) and must not have ended.
template <class T>
TL_DEVICE T* cluster_map(T* shared, uint32_t rank) {
  uint64_t p;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(p) : "l"(shared), "r"(rank));
  return (T*)p;
}
template <class T>
TL_DEVICE T cluster_load(const T* shared, uint32_t rank) { return *cluster_map(shared, rank); }
template <class T>
TL_DEVICE void cluster_store(T* shared, uint32_t rank, T value) { *cluster_map(shared, rank) = value; }

// c[i] += what lies in the shared memory of block `rank` where `shared` points to in this one's: `width` neighbours at once,
// the next ones `stride` elements further on.
template <int count, int stride, int width, class T>
TL_DEVICE void add_remote(T* c, const T* shared, uint32_t rank) {
  const T* part = cluster_map((T*)shared, rank);
#pragma unroll
  for (int i = 0; i < count / width; ++i) {
    const vec<T, width> piece = *(const vec<T, width>*)(part + i * stride);
#pragma unroll
    for (int j = 0; j < width; ++j) c[i * width + j] += piece[j];
  }
  asm volatile("" ::: "memory");  // the next block's elements are loaded when these registers are free
}

// True in one lane of the full warp that calls it, always the same.
TL_DEVICE bool elect_one() {
  uint32_t r;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.b32 %0, 1, 0, p;\n}" : "=r"(r)::"memory");
  return r;
}

// Waits until the kernels that this launch depends on have ended and what they wrote is visible.
TL_DEVICE void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
// Lets kernels that depend on this one start, once all blocks have called it or ended.
TL_DEVICE void grid_dependency_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

#endif

}  // namespace tl
