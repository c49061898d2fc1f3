// What the parts of the runtime share. One cluster of blocks runs at a time (most often of one block), in one host thread; a
// thread is a fiber. Threads are numbered through the cluster, each block's from a multiple of the warp size.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "../include/tl/abi.h"

namespace emu {

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

constexpr int kMaxThreads = 1024;   // of a block
constexpr int kMaxResident = 4096;  // of a cluster
constexpr int kMaxWarps = kMaxResident / 32;
constexpr int kMaxBlocks = 16;      // of a cluster
constexpr int kMaxAgents = 1000;    // asynchronous actors: mbarriers, warpgroups
constexpr int kMaxColumns = kMaxResident + kMaxAgents;
constexpr u32 kSharedBytes = 232448;  // what one block of sm_90 may have; smaller chips are the compiler's to check

// ---- findings --------------------------------------------------------------------------------------------------------
// The numbers are those of report.py.
enum Kind : int {
  kUninitialized, kReadAfterWrite, kWriteAfterWrite, kWriteAfterRead, kReadInFlight, kWriteInFlight, kBetweenBlocks,
  kOutOfBounds, kReadOnly, kMisaligned, kDiverged, kDeadlock, kAssert, kFault, kTimeout, kLimit, kExited, kBadBarrier,
  kNotUniform, kPartialWave,
  kNoMbarrier, kOverArrival, kMbarrierAsData, kTransactionCount, kProxyFence, kWriteUnderRead, kRegisterInFlight,
  kWgmmaFence, kBadDescriptor, kRegisterLimit, kExitInFlight, kBlockHasEnded, kBadTensorMap, kBadCoordinates,
  kIncompleteBarrier,
  kKinds
};

struct Finding {  // read by report.py
  int kind, space, size, thread, other, code;
  u32 block[3];
  u32 repeats;
  int64_t offset;
  u64 pc, other_pc;
  int other_rank;  // its block in the cluster, if not the thread's own
  int window;      // through which shared memory was accessed, where that has bounds that were left
};

struct Settings {  // written by module.py
  u64 seed;
  int late, checks, warp_size, processes;
  double timeout_seconds, worthwhile_seconds;  // the latter: work for which other processes are asked
  unsigned cluster[3];
};

struct Counters {  // read by report.py, in this order
  u64 blocks, switches, accesses, global_read_bytes, global_written_bytes, shared_read_bytes, shared_written_bytes;
  u64 barriers, warp_barriers, shuffles, votes, ldmatrix, ldmatrix_wavefronts, stmatrix, stmatrix_wavefronts;
  u64 mma, cp_async, cp_async_bytes, atomics, global_requests, global_sectors, shared_requests, shared_wavefronts;
  u64 direct_loads;
  u64 mbarrier_arrivals, mbarrier_waits, tma_loads, tma_stores, tma_bytes, wgmma;
  u64 cp_async_requests, cp_async_wavefronts;
};

// ---- memory under watch ------------------------------------------------------------------------------------------------
// An epoch names a moment of an actor: atomic flag, actor + 1, clock. 0: never. Actors are the threads and, after them, the
// agents of asynchronous work; how many bits the clock has depends on how many there may be.
typedef u32 Epoch;
constexpr u32 kAtomic = 0x80000000u;
extern u32 clock_bits, clock_mask;

struct Cell {  // last write and the reads since, of 1 to 16 bytes
  Epoch write;
  Epoch read[3];  // or kManyReads, index of a list of clocks per thread
  u32 write_block, read_block;  // block + 1; read_block has kOtherBlocks if further blocks have read
  u32 write_pc;                 // relative to the kernel's image
  u32 asynchronous;             // written through the asynchronous proxy
};
constexpr u32 kManyReads = 0xffffffffu, kOtherBlocks = 0x80000000u;

struct Granule {  // 16 bytes; one cell for all of them until someone touches a part
  Cell whole;
  Cell* parts;
  u8 level;            // 2^level cells
  u8 mbarriers;        // halves that hold one
  uint16_t in_flight;  // bytes that an asynchronous copy is about to write
  uint16_t issuer;     // the thread that started the asynchronous access
  uint16_t readers;    // asynchronous operations that still read here
};

struct Mark;

struct Space {
  u8 *low, *high;
  Granule* granules;
  Mark* marks;  // where several processes run blocks; see processes.cpp
  bool writable, initialized, global;
  int index;  // in the launch's list of buffers; -1: shared memory
};

// ---- threads -----------------------------------------------------------------------------------------------------------
struct Handed;

struct Row {  // what a thread knows of the others' clocks; shared by those that met at a barrier
  int references;
  int columns;           // actors that it knows of; the clock of others is 0
  const Handed* others;  // what other blocks have handed on
  u32 clock[kMaxColumns];
  u32 at(int actor) const { return actor < columns ? clock[actor] : 0; }
};

struct Copy {
  u8* destination;
  const u8* source;
  int bytes;
  bool valid;
  const void* pc;
};

enum Operation : int {
  kRunning, kAtBarrier, kSyncWarp, kShuffle, kBallot, kLdmatrix, kStmatrix, kMma, kDirectLoad, kDone,
  kAtMbarrier, kAtCluster, kWgmma, kWgmmaCommit, kWgmmaWait, kSetRegisters, kAwaitRegisters
};

struct Thread {
  tl_emu_self_t* self;
  void* stack_pointer;
  int id, warp, lane, rank;  // rank: of its block in the cluster
  Operation at;     // what it waits for
  int barrier;
  void* operands;   // of the collective that it waits in
  const void* pc;   // where
  Row* row;
  u32 clock;
  const Handed *fenced, *met;  // what its last fence has seen; what its atomics have met since
  std::vector<Copy> open;                 // copies since the last commit
  std::vector<std::vector<Copy>> groups;  // committed, oldest first
  std::vector<Copy> loads;                // straight to shared memory, oldest first
  size_t landed;                          // of them
};

struct Warp {
  u64 all, arrived, runnable;  // lanes
  Operation at;
};

struct Block {
  int threads, warps;    // of one block; of the cluster
  int size, slots;       // blocks of the cluster; numbers of its threads end before this one
  int agents, finished;  // asynchronous actors so far; threads that have ended
  u32 number;  // + 1; of the cluster; unique in the launch
  u64 runnable_warps[kMaxWarps / 64];
  u32 shared_bytes;
  int columns() const { return slots + agents; }
};

extern Settings settings;
extern Counters counters;
extern Thread threads[kMaxResident];
extern Warp warps[kMaxWarps];
extern Block block;
extern Thread* current;
extern bool launched;

// Shared memory of the cluster's blocks: one after the other, at this distance.
constexpr int kSharedStrideBits = 20;
extern Space shared_spaces[kMaxBlocks];
inline Space& own_shared() { return shared_spaces[current->rank]; }
// An address of window 0.
inline Space* shared_at(const void* p) {
  u64 offset = (u64)((const u8*)p - shared_spaces[0].low);
  return offset < (u64)block.size << kSharedStrideBits ? &shared_spaces[offset >> kSharedStrideBits] : nullptr;
}

// launch.cpp
u32 random_number();
[[noreturn]] void abandon();  // leave the kernel for the launcher
bool add_finding(Kind kind, const Space* space, const void* address, int size, int other, const void* pc, u64 other_pc,
                 int code = 0, int window = 0);
[[noreturn]] void fail(Kind kind, const void* pc, int other = -1, int code = 0);
u64 image_base();

// fibers.cpp
void wait_here();             // run others until someone makes this thread runnable
void give_way();              // let others run once
void on_launcher_stack(void (*errand)());
void make_runnable(Thread* thread);
void make_lanes_runnable(int warp, u64 lanes);
void map_stacks(int count);
void prepare_threads(void (*entry)(void**), void** arguments);
void start_block_threads(int rank, const tl_emu_self_t& common);
bool run_block();             // false: abandoned
bool on_stacks(const void* p);

// shadow.cpp
struct Actor {  // who accesses: what it has seen, whose own accesses it knows (-1: nobody's), and the moment
  const Row* row;
  int self;
  Epoch epoch;
};
Actor this_thread();
Epoch epoch_of(int actor, u32 clock);
int new_agent();               // its number among the actors
void reset_clocks();
void join_clocks(Thread* const* members, int count);
void tick(Thread& thread);     // what it does from now on is not part of what it has released
Row* new_row();
void drop_row(Row* row);
void set_row(Thread& thread, Row* row);
void merge(Row& into, const Row& from);
void release_to(Row& row, Thread& thread);   // the thread's past becomes part of the row
void acquire(Thread& thread, Row* row);      // and the reverse
void learn(Thread& thread, const Handed* handed);
void check_cells(Space& space, const u8* address, u32 size, bool write, bool atomic, const void* pc);
void mark_in_flight(Space& space, const u8* address, u32 size, const void* pc);
void land(Space& space, const u8* address, u32 size);
// Asynchronous accesses of any size: checked and marked at the issue, unmarked when the operation is known to have ended.
void begin_write(Space& space, const u8* address, u32 size, const Actor& actor, const void* pc, bool atomic = false);
void end_write(Space& space, const u8* address, u32 size, Epoch epoch);
void begin_read(Space& space, const u8* address, u32 size, const Actor& actor, const void* pc);
void end_read(Space& space, const u8* address, u32 size, const Actor& actor);
void reset_shadow(Space& space, u32 bytes);
void settle_same_value();
void forget_pending();

// handover.cpp
void forget_handed();
void hand_over(const u8* address);
const Handed* both(const Handed* a, const Handed* b);
bool is_handed(const Handed* handed, u32 number, int thread, u32 clock);

// memory.cpp
enum Access { kRead, kWrite, kAtomicUpdate };
Space* check_access(const void* address, u32 size, Access access, const void* pc, bool aligned);

// windows.cpp
struct Window {  // of shared memory: what a line of the text declares; written by module.py
  int line;
  u32 low, high;
};
constexpr u64 kWindowStride = (u64)kMaxBlocks << kSharedStrideBits;
constexpr int kMaxWindows = 63;
bool prepare_shared(int count);
bool own_shared_memory();
bool inside_window(int number, u64 offset, u32 size);
u8* leave_window(const u8* p, u32 size, Access access, const void* pc);
// The address in window 0 of `size` bytes; those outside of what the window shows are found.
inline u8* through_window(const void* p, u32 size, Access access, const void* pc) {
  u64 offset = (u64)((const u8*)p - shared_spaces[0].low) - kWindowStride;
  return offset < kMaxWindows * kWindowStride ? leave_window((const u8*)p, size, access, pc) : (u8*)p;
}

// processes.cpp
void note_access(Space& space, const u8* address, u32 size, bool write, bool atomic);
void order_matters();
// stops.cpp
bool release_stopped();       // when nobody can run: false if nobody stands at a stop

// async_copy.cpp
void reset_copies(Thread& thread);

// direct_load.cpp
void reset_loads(Thread& thread);

#define TL_EMU_PC __builtin_return_address(0)

}  // namespace emu
