// What emulated kernels call in the runtime: the border between the two. No standard headers: they are most of what a
// host compiler spends its time on.
#pragma once

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;

// What a thread knows about itself. It lies on the thread's own stack, which is exempt from all checks.
struct tl_emu_index {
  unsigned x, y, z;
};
struct tl_emu_self_t {
  tl_emu_index thread_index, block_index, block_size, grid_size;
  unsigned char* shared;
  unsigned cluster_rank, cluster_size;
};

// Operands of a matrix multiply-accumulate: element types, depth, and the form of the accumulator.
enum tl_emu_element {
  TL_F16, TL_BF16, TL_TF32, TL_XF32, TL_F32, TL_F64, TL_E4M3, TL_E5M2, TL_E4M3_FNUZ, TL_E5M2_FNUZ, TL_S8, TL_U8, TL_S4, TL_U4
};
enum tl_emu_mma_form { TL_MMA_16_ROWS, TL_MMA_F16, TL_MMA_8_ROWS };
enum tl_emu_shuffle_mode { TL_SHUFFLE_XOR, TL_SHUFFLE_DOWN, TL_SHUFFLE_UP, TL_SHUFFLE_IDX };

extern "C" {
// Constant within a thread, as each thread has a stack of its own and never leaves it.
__attribute__((const)) const tl_emu_self_t* tl_emu_self();

__attribute__((const)) unsigned char* tl_emu_shared(int line);  // through the window of that line's buffer

void tl_emu_sync_threads(int barrier, int count);  // count 0: the whole block
void tl_emu_sync_warp();
uint64_t tl_emu_shuffle(uint64_t value, int mode, int argument);
uint64_t tl_emu_ballot(int predicate);
void tl_emu_ldmatrix(void* registers, const void* row, int count, int transposed);
void tl_emu_stmatrix(void* row, const void* registers, int count, int transposed);
void tl_emu_mma(void* c, const void* a, const void* b, int a_type, int b_type, int depth, int form);
void tl_emu_mfma(void* c, const void* a, const void* b, int rows, int depth, int blocks, int a_type, int b_type, int flush);
void tl_emu_cp_async(void* shared, const void* global, int bytes, int valid);
void tl_emu_cp_async_commit();
void tl_emu_cp_async_wait(int pending);
void tl_emu_load_to_lds(void* shared, const void* global, int bytes);
void tl_emu_wait_loads(int pending);
void tl_emu_arrive_threads(int barrier, int count);

void tl_emu_mbarrier_init(void* barrier, unsigned count);
void tl_emu_mbarrier_inval(void* barrier);
void tl_emu_mbarrier_arrive(void* barrier, int rank, unsigned count, unsigned bytes, int arrives);  // rank -1: own block
int tl_emu_mbarrier_wait(void* barrier, unsigned parity, int mode);                                 // test, try, wait
void tl_emu_cp_async_mbarrier_arrive(void* barrier);
void tl_emu_fence(int proxy);  // 0: of mbarrier initializations, 1: of the asynchronous proxy

// Copies. blocks: a bit for each of the cluster, 0 for the own one alone. operation -1: a store, else of tl::reduction.
void tl_emu_tma_load(void* shared, const void* map, void* barrier, const int* at, int rank, unsigned blocks);
void tl_emu_tma_store(const void* map, const void* shared, const int* at, int rank, int operation);
void tl_emu_tma_prefetch(const void* map, int rank);
void tl_emu_bulk_load(void* shared, const void* global, unsigned bytes, void* barrier, unsigned blocks);
void tl_emu_bulk_copy_cluster(void* to, const void* from, unsigned bytes, void* barrier, unsigned rank);
void tl_emu_bulk_store(void* global, const void* shared, unsigned bytes, int type, int operation);
void tl_emu_bulk_prefetch(const void* global, unsigned bytes);
void tl_emu_bulk_commit();
void tl_emu_bulk_wait(int pending, int reads_only);

// types: of a, of b << 4, f16 accumulator << 8. majors: of a, of b << 1; 1 is MN-major. a: registers, or null.
void tl_emu_wgmma(void* d, const void* a, uint64_t a_descriptor, uint64_t b_descriptor, int n, int types, int majors,
                  int scale_d);
void tl_emu_wgmma_fence();
void tl_emu_wgmma_commit();
void tl_emu_wgmma_wait(int pending);
void tl_emu_set_registers(int count, int increase);

void tl_emu_cluster_arrive(int releases);
void tl_emu_cluster_wait();
void* tl_emu_map(const void* shared, unsigned rank);
int tl_emu_elect();

void tl_emu_thread_fence(void);  // of the device
void tl_emu_atomic(const void* address, int bytes);  // checks; the header then does the operation
void tl_emu_print(const char* text);
void tl_emu_assert_failed(int code);
uint64_t tl_emu_meaning(const char* name, const char* signature, const uint64_t* operands);  // asks Python

// In texts that emulator/stops.py has prepared.
void tl_emu_stop(int number);
void tl_emu_show(int slot, const void* array);  // null: out of scope
}

struct tl_emu_shown_t {
  int slot;
  tl_emu_shown_t(int slot, const void* array) : slot(slot) { tl_emu_show(slot, array); }
  ~tl_emu_shown_t() { tl_emu_show(slot, nullptr); }
};
