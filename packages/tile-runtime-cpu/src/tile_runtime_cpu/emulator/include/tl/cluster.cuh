// Clusters, one lane of a warp, dependent launches (which are always over before a launch begins here).
#pragma once

namespace tl {

TL_DEVICE uint32_t cluster_rank() { return tl_emu_self()->cluster_rank; }
TL_DEVICE uint32_t cluster_size() { return tl_emu_self()->cluster_size; }

TL_DEVICE void cluster_arrive() { tl_emu_cluster_arrive(1); }
TL_DEVICE void cluster_arrive_relaxed() { tl_emu_cluster_arrive(0); }
TL_DEVICE void cluster_wait() { tl_emu_cluster_wait(); }
TL_DEVICE void cluster_sync() {
  tl_emu_cluster_arrive(1);
  tl_emu_cluster_wait();
}

// A cooperative launch runs all of its blocks together, as those of a cluster.
TL_DEVICE void sync_grid(uint32_t* arrived) {
  if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) atomic_add(arrived, 1u);
  tl_emu_fence(1);
  cluster_sync();
}

template <class T>
TL_DEVICE T* cluster_map(T* shared, uint32_t rank) { return (T*)tl_emu_map(shared, rank); }
template <class T>
TL_DEVICE T cluster_load(const T* shared, uint32_t rank) { return *cluster_map(shared, rank); }
template <class T>
TL_DEVICE void cluster_store(T* shared, uint32_t rank, T value) { *cluster_map(shared, rank) = value; }

template <int count, int stride, int width, class T>
TL_DEVICE void add_remote(T* c, const T* shared, uint32_t rank) {
  const T* part = cluster_map((T*)shared, rank);
  for (int i = 0; i < count / width; ++i) {
    const vec<T, width> piece = *(const vec<T, width>*)(part + i * stride);
    for (int j = 0; j < width; ++j) c[i * width + j] += piece[j];
  }
}

TL_DEVICE bool elect_one() { return tl_emu_elect(); }

TL_DEVICE void grid_dependency_wait() {}
TL_DEVICE void grid_dependency_launch() {}

}  // namespace tl
