// Bulk copies by the tensor memory accelerator (PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy:
// cp.async.bulk, cp.reduce.async.bulk, cp.async.bulk.tensor, cp.reduce.async.bulk.tensor").
//
// One thread issues. Loads end at an mbarrier, which counts their bytes: the whole box, parts out of bounds included. Stores
// and reductions end in bulk groups of the thread. A tensor map is a parameter `const __grid_constant__ tl::tensor_map`, made
// by the host (cuTensorMapEncodeTiled).
//
// Coordinates count elements, the fastest dimension first. That one times the element's size is a multiple of 16 bytes, and
// no coordinate of a store or reduction is negative (boxes may end outside the tensor): anything else is an illegal
// instruction.
#pragma once

namespace tl {

struct __align__(64) tensor_map {
  unsigned char opaque[128];
};

// What L2 shall do with the lines.
enum cache_hint { cache_normal = 0, evict_first = 1, evict_last = 2 };
enum reduction { reduce_add, reduce_min, reduce_max, reduce_and, reduce_or, reduce_xor };

#if TL_HAS(900)

namespace detail {

template <int hint>
TL_DEVICE uint64_t cache_policy() {
  static_assert(hint == evict_first || hint == evict_last, "a cache hint is cache_normal, evict_first or evict_last");
  uint64_t policy;
  if (hint == evict_first) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  } else {
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  }
  return policy;
}

template <int operation>
struct reduction_name;
#define TL_REDUCTION_NAME(name, text)                \
  template <>                                        \
  struct reduction_name<name> {                      \
    static constexpr char value[] = text;            \
  };
TL_REDUCTION_NAME(reduce_add, ".add")
TL_REDUCTION_NAME(reduce_min, ".min")
TL_REDUCTION_NAME(reduce_max, ".max")
TL_REDUCTION_NAME(reduce_and, ".and")
TL_REDUCTION_NAME(reduce_or, ".or")
TL_REDUCTION_NAME(reduce_xor, ".xor")
#undef TL_REDUCTION_NAME

// The type of a reduction without a tensor map; f16 and bf16 add without flushing subnormal numbers.
template <class T, int operation>
struct bulk_type;
#define TL_BULK_TYPE(type, text)            \
  template <int operation>                  \
  struct bulk_type<type, operation> {       \
    static constexpr char value[] = text;   \
  };
TL_BULK_TYPE(half_t, ".f16")
TL_BULK_TYPE(bfloat16_t, ".bf16")
TL_BULK_TYPE(float, ".f32")
TL_BULK_TYPE(double, ".f64")
TL_BULK_TYPE(int32_t, ".s32")
TL_BULK_TYPE(uint32_t, ".u32")
TL_BULK_TYPE(int64_t, ".s64")
TL_BULK_TYPE(uint64_t, ".u64")
#undef TL_BULK_TYPE
template <>
struct bulk_type<half_t, reduce_add> {
  static constexpr char value[] = ".noftz.f16";
};
template <>
struct bulk_type<bfloat16_t, reduce_add> {
  static constexpr char value[] = ".noftz.bf16";
};
// PTX adds s64 as u64 and has the bitwise operations on untyped words.
template <>
struct bulk_type<int64_t, reduce_add> {
  static constexpr char value[] = ".u64";
};
#define TL_BULK_BITS(type, text)                                                                                     \
  template <>                                                                                                        \
  struct bulk_type<type, reduce_and> {                                                                               \
    static constexpr char value[] = text;                                                                            \
  };                                                                                                                 \
  template <>                                                                                                        \
  struct bulk_type<type, reduce_or> {                                                                                \
    static constexpr char value[] = text;                                                                            \
  };                                                                                                                 \
  template <>                                                                                                        \
  struct bulk_type<type, reduce_xor> {                                                                               \
    static constexpr char value[] = text;                                                                            \
  };
TL_BULK_BITS(int32_t, ".b32")
TL_BULK_BITS(uint32_t, ".b32")
TL_BULK_BITS(int64_t, ".b64")
TL_BULK_BITS(uint64_t, ".b64")
#undef TL_BULK_BITS

}  // namespace detail

// Fetches a tensor map ahead of its first use.
TL_DEVICE void prefetch_tensor_map(const tensor_map* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// TL_TMA_RANKS(use) is use(rank, parameters, text of the coordinates, the number of the operand after them, and the one after
// that, operands): the coordinates come after three other operands.
#define TL_UNPACK(...) __VA_ARGS__
#define TL_TMA_RANKS_AFTER_3(use)                                                                                 \
  use(1, (int x), "%3", 4, 5, "r"(x))                                                                             \
  use(2, (int x, int y), "%3, %4", 5, 6, "r"(x), "r"(y))                                                          \
  use(3, (int x, int y, int z), "%3, %4, %5", 6, 7, "r"(x), "r"(y), "r"(z))                                       \
  use(4, (int x, int y, int z, int v), "%3, %4, %5, %6", 7, 8, "r"(x), "r"(y), "r"(z), "r"(v))                    \
  use(5, (int x, int y, int z, int v, int w), "%3, %4, %5, %6, %7", 8, 9, "r"(x), "r"(y), "r"(z), "r"(v), "r"(w))
#define TL_TMA_RANKS_AFTER_2(use)                                                                                 \
  use(1, (int x), "%2", 3, 4, "r"(x))                                                                             \
  use(2, (int x, int y), "%2, %3", 4, 5, "r"(x), "r"(y))                                                          \
  use(3, (int x, int y, int z), "%2, %3, %4", 5, 6, "r"(x), "r"(y), "r"(z))                                       \
  use(4, (int x, int y, int z, int v), "%2, %3, %4, %5", 6, 7, "r"(x), "r"(y), "r"(z), "r"(v))                    \
  use(5, (int x, int y, int z, int v, int w), "%2, %3, %4, %5, %6", 7, 8, "r"(x), "r"(y), "r"(z), "r"(v), "r"(w))
#define TL_TMA_RANKS_AFTER_1(use)                                                                                 \
  use(1, (int x), "%1", 2, 3, "r"(x))                                                                             \
  use(2, (int x, int y), "%1, %2", 3, 4, "r"(x), "r"(y))                                                          \
  use(3, (int x, int y, int z), "%1, %2, %3", 4, 5, "r"(x), "r"(y), "r"(z))                                       \
  use(4, (int x, int y, int z, int v), "%1, %2, %3, %4", 5, 6, "r"(x), "r"(y), "r"(z), "r"(v))                    \
  use(5, (int x, int y, int z, int v, int w), "%1, %2, %3, %4, %5", 6, 7, "r"(x), "r"(y), "r"(z), "r"(v), "r"(w))

// A box of the tensor into shared memory, at the coordinates of its first element.
#define TL_TMA_LOAD(rank, parameters, coordinates, t0, t1, ...)                                                       \
  template <int hint = cache_normal>                                                                                  \
  TL_DEVICE void tma_load(void* shared, const tensor_map* map, uint64_t* barrier, TL_UNPACK parameters) {             \
    uint32_t to = detail::shared_address(shared), signal = detail::shared_address(barrier);                           \
    if constexpr (hint == cache_normal) {                                                                             \
      asm volatile("cp.async.bulk.tensor." #rank "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "        \
                   "[%0], [%1, {" coordinates "}], [%2];" ::"r"(to), "l"(map), "r"(signal), __VA_ARGS__               \
                   : "memory");                                                                                       \
    } else {                                                                                                          \
      asm volatile("cp.async.bulk.tensor." #rank "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint "\
                   "[%0], [%1, {" coordinates "}], [%2], %" #t0 ";" ::"r"(to), "l"(map), "r"(signal),                 \
                   __VA_ARGS__, "l"(detail::cache_policy<hint>())                                                     \
                   : "memory");                                                                                       \
    }                                                                                                                 \
  }
TL_TMA_RANKS_AFTER_3(TL_TMA_LOAD)
#undef TL_TMA_LOAD

// The same into the blocks of the cluster whose bits are set in `blocks`: to the same place in each, signalling the barrier at
// the same place in each.
#define TL_TMA_LOAD_MULTICAST(rank, parameters, coordinates, t0, t1, ...)                                             \
  template <int hint = cache_normal>                                                                                  \
  TL_DEVICE void tma_load_multicast(void* shared, const tensor_map* map, uint64_t* barrier, uint16_t blocks, TL_UNPACK parameters) {\
    uint32_t to = detail::shared_address(shared), signal = detail::shared_address(barrier);                           \
    if constexpr (hint == cache_normal) {                                                                             \
      asm volatile("cp.async.bulk.tensor." #rank "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "\
                   "[%0], [%1, {" coordinates "}], [%2], %" #t0 ";" ::"r"(to), "l"(map), "r"(signal), __VA_ARGS__, "h"(blocks)\
                   : "memory");                                                                                       \
    } else {                                                                                                          \
      asm volatile("cp.async.bulk.tensor." #rank "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "\
                   "[%0], [%1, {" coordinates "}], [%2], %" #t0 ", %" #t1 ";" ::"r"(to), "l"(map), "r"(signal),       \
                   __VA_ARGS__, "h"(blocks), "l"(detail::cache_policy<hint>())                                        \
                   : "memory");                                                                                       \
    }                                                                                                                 \
  }
TL_TMA_RANKS_AFTER_3(TL_TMA_LOAD_MULTICAST)
#undef TL_TMA_LOAD_MULTICAST

// A box from shared memory into the tensor; what lies out of bounds is not written. Part of the thread's open bulk group.
#define TL_TMA_STORE(rank, parameters, coordinates, t0, t1, ...)                                                      \
  template <int hint = cache_normal>                                                                                  \
  TL_DEVICE void tma_store(const tensor_map* map, const void* shared, TL_UNPACK parameters) {                         \
    uint32_t from = detail::shared_address(shared);                                                                   \
    if constexpr (hint == cache_normal) {                                                                             \
      asm volatile("cp.async.bulk.tensor." #rank "d.global.shared::cta.tile.bulk_group [%0, {" coordinates "}], [%1];" ::\
                       "l"(map), "r"(from), __VA_ARGS__                                                               \
                   : "memory");                                                                                       \
    } else {                                                                                                          \
      asm volatile("cp.async.bulk.tensor." #rank "d.global.shared::cta.tile.bulk_group.L2::cache_hint "               \
                   "[%0, {" coordinates "}], [%1], %" #t0 ";" ::"l"(map), "r"(from), __VA_ARGS__,                     \
                   "l"(detail::cache_policy<hint>())                                                                  \
                   : "memory");                                                                                       \
    }                                                                                                                 \
  }
TL_TMA_RANKS_AFTER_2(TL_TMA_STORE)
#undef TL_TMA_STORE

// The same, combining with what the tensor holds, element by element: tma_reduce<reduce_add>(map, shared, x, ...).
#define TL_TMA_REDUCE(rank, parameters, coordinates, t0, t1, ...)                                                     \
  template <int operation>                                                                                            \
  TL_DEVICE void tma_reduce(const tensor_map* map, const void* shared, TL_UNPACK parameters) {                        \
    asm volatile("cp.reduce.async.bulk.tensor." #rank "d.global.shared::cta%" #t0 ".tile.bulk_group [%0, {" coordinates\
                 "}], [%1];" ::"l"(map), "r"(detail::shared_address(shared)), __VA_ARGS__,                            \
                 "C"(detail::reduction_name<operation>::value)                                                        \
                 : "memory");                                                                                         \
  }
TL_TMA_RANKS_AFTER_2(TL_TMA_REDUCE)
#undef TL_TMA_REDUCE

// A box of the tensor into L2.
#define TL_TMA_PREFETCH(rank, parameters, coordinates, t0, t1, ...)                                                   \
  TL_DEVICE void tma_prefetch(const tensor_map* map, TL_UNPACK parameters) {                                          \
    asm volatile("cp.async.bulk.prefetch.tensor." #rank "d.L2.global.tile [%0, {" coordinates "}];" ::"l"(map), __VA_ARGS__\
                 : "memory");                                                                                         \
  }
TL_TMA_RANKS_AFTER_1(TL_TMA_PREFETCH)
#undef TL_TMA_PREFETCH
#undef TL_TMA_RANKS_AFTER_1
#undef TL_TMA_RANKS_AFTER_2
#undef TL_TMA_RANKS_AFTER_3
#undef TL_UNPACK

// ---- without a tensor map: `bytes` in a row, a multiple of 16 like both addresses --------------------------------------

TL_DEVICE void bulk_load(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   detail::shared_address(shared)),
               "l"(global), "r"(bytes), "r"(detail::shared_address(barrier))
               : "memory");
}
TL_DEVICE void bulk_load_multicast(void* shared, const void* global, uint32_t bytes, uint64_t* barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(
          detail::shared_address(shared)),
      "l"(global), "r"(bytes), "r"(detail::shared_address(barrier)), "h"(blocks)
      : "memory");
}
// From this block's shared memory to the same or another place in that of block `rank`; `to` and `barrier` are given as this
// block's own addresses.
TL_DEVICE void bulk_copy_cluster(void* to, const void* from, uint32_t bytes, uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 there, signal;\nmapa.shared::cluster.u32 there, %0, %4;\nmapa.shared::cluster.u32 signal, %3, %4;\n"
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there], [%1], %2, [signal];\n}" ::"r"(
          detail::shared_address(to)),
      "r"(detail::shared_address(from)), "r"(bytes), "r"(detail::shared_address(barrier)), "r"(rank)
      : "memory");
}
TL_DEVICE void bulk_store(void* global, const void* shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(detail::shared_address(shared)), "r"(bytes)
               : "memory");
}
// bulk_reduce<reduce_add>(float* to, from, bytes): element by element, each update atomic.
template <int operation, class T>
TL_DEVICE void bulk_reduce(T* global, const T* shared, uint32_t bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group%3%4 [%0], [%1], %2;" ::"l"(global),
               "r"(detail::shared_address(shared)), "r"(bytes), "C"(detail::reduction_name<operation>::value),
               "C"(detail::bulk_type<T, operation>::value)
               : "memory");
}
TL_DEVICE void bulk_prefetch(const void* global, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}

// ---- groups of stores and reductions of this thread --------------------------------------------------------------------

TL_DEVICE void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until at most the `pending` newest groups are under way; bulk_wait_read: have not read all of their shared memory.
template <int pending>
TL_DEVICE void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(pending) : "memory"); }
template <int pending>
TL_DEVICE void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory"); }

#endif

}  // namespace tl
