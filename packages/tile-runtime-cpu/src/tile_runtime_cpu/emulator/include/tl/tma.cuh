// Bulk copies; a tensor map is packed by tensor_map.py for the emulator.
#pragma once

namespace tl {

struct tensor_map {  // the runtime alone looks into it
  unsigned char opaque[128];
};

enum cache_hint { cache_normal = 0, evict_first = 1, evict_last = 2 };
enum reduction { reduce_add, reduce_min, reduce_max, reduce_and, reduce_or, reduce_xor };

TL_DEVICE void prefetch_tensor_map(const tensor_map*) {}

#define TL_UNPACK(...) __VA_ARGS__
#define TL_TMA(rank, parameters, ...)                                                                                 \
  template <int hint = cache_normal>                                                                                  \
  TL_DEVICE void tma_load(void* shared, const tensor_map* map, uint64_t* barrier, TL_UNPACK parameters) {             \
    static_assert(hint >= cache_normal && hint <= evict_last, "a hint of enum cache_hint");                           \
    const int at[] = {__VA_ARGS__};                                                                                   \
    tl_emu_tma_load(shared, map, barrier, at, rank, 0);                                                               \
  }                                                                                                                   \
  template <int hint = cache_normal>                                                                                  \
  TL_DEVICE void tma_load_multicast(void* shared, const tensor_map* map, uint64_t* barrier, uint16_t blocks,          \
                                    TL_UNPACK parameters) {                                                           \
    static_assert(hint >= cache_normal && hint <= evict_last, "a hint of enum cache_hint");                           \
    const int at[] = {__VA_ARGS__};                                                                                   \
    tl_emu_tma_load(shared, map, barrier, at, rank, blocks);                                                          \
  }                                                                                                                   \
  template <int hint = cache_normal>                                                                                  \
  TL_DEVICE void tma_store(const tensor_map* map, const void* shared, TL_UNPACK parameters) {                         \
    static_assert(hint >= cache_normal && hint <= evict_last, "a hint of enum cache_hint");                           \
    const int at[] = {__VA_ARGS__};                                                                                   \
    tl_emu_tma_store(map, shared, at, rank, -1);                                                                      \
  }                                                                                                                   \
  template <int operation>                                                                                            \
  TL_DEVICE void tma_reduce(const tensor_map* map, const void* shared, TL_UNPACK parameters) {                        \
    const int at[] = {__VA_ARGS__};                                                                                   \
    tl_emu_tma_store(map, shared, at, rank, operation);                                                               \
  }                                                                                                                   \
  TL_DEVICE void tma_prefetch(const tensor_map* map, TL_UNPACK parameters) { tl_emu_tma_prefetch(map, rank); }
TL_TMA(1, (int x), x)
TL_TMA(2, (int x, int y), x, y)
TL_TMA(3, (int x, int y, int z), x, y, z)
TL_TMA(4, (int x, int y, int z, int v), x, y, z, v)
TL_TMA(5, (int x, int y, int z, int v, int w), x, y, z, v, w)
#undef TL_TMA
#undef TL_UNPACK

namespace detail {
// The type's number among the driver's (CUtensorMapDataType).
template <class T>
struct bulk_type;
#define TL_BULK_TYPE(type, number)        \
  template <>                             \
  struct bulk_type<type> {                \
    static constexpr int value = number;  \
  };
TL_BULK_TYPE(uint32_t, 2)
TL_BULK_TYPE(int32_t, 3)
TL_BULK_TYPE(uint64_t, 4)
TL_BULK_TYPE(int64_t, 5)
TL_BULK_TYPE(half_t, 6)
TL_BULK_TYPE(float, 7)
TL_BULK_TYPE(double, 8)
TL_BULK_TYPE(bfloat16_t, 9)
#undef TL_BULK_TYPE
}  // namespace detail

TL_DEVICE void bulk_load(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  tl_emu_bulk_load(shared, global, bytes, barrier, 0);
}
TL_DEVICE void bulk_load_multicast(void* shared, const void* global, uint32_t bytes, uint64_t* barrier, uint16_t blocks) {
  tl_emu_bulk_load(shared, global, bytes, barrier, blocks);
}
TL_DEVICE void bulk_copy_cluster(void* to, const void* from, uint32_t bytes, uint64_t* barrier, uint32_t rank) {
  tl_emu_bulk_copy_cluster(to, from, bytes, barrier, rank);
}
TL_DEVICE void bulk_store(void* global, const void* shared, uint32_t bytes) {
  tl_emu_bulk_store(global, shared, bytes, 0, -1);
}
template <int operation, class T>
TL_DEVICE void bulk_reduce(T* global, const T* shared, uint32_t bytes) {
  tl_emu_bulk_store(global, shared, bytes, detail::bulk_type<T>::value, operation);
}
TL_DEVICE void bulk_prefetch(const void* global, uint32_t bytes) { tl_emu_bulk_prefetch(global, bytes); }

TL_DEVICE void bulk_commit() { tl_emu_bulk_commit(); }
template <int pending>
TL_DEVICE void bulk_wait() { tl_emu_bulk_wait(pending, 0); }
template <int pending>
TL_DEVICE void bulk_wait_read() { tl_emu_bulk_wait(pending, 1); }

}  // namespace tl
