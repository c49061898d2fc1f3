// What the parts of the runtime share. One block runs at a time, in one host thread; a thread of the block is a fiber.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "../include/tl/abi.h"

namespace emu {

typedef uint8_t u8;
typedef uint32_t u32;
typedef uint64_t u64;

constexpr int kMaxThreads = 1024;
constexpr int kMaxWarps = kMaxThreads / 32;
constexpr u32 kSharedBytes = 232448;  // what one block of sm_90 may have; smaller chips are the compiler's to check

// ---- findings --------------------------------------------------------------------------------------------------------
// The numbers are those of report.py.
enum Kind : int {
  kUninitialized, kReadAfterWrite, kWriteAfterWrite, kWriteAfterRead, kReadInFlight, kWriteInFlight, kBetweenBlocks,
  kOutOfBounds, kReadOnly, kMisaligned, kDiverged, kDeadlock, kAssert, kFault, kTimeout, kLimit, kExited, kBadBarrier,
  kNotUniform, kPartialWave,
  kKinds
};

struct Finding {  // read by report.py
  int kind, space, size, thread, other, code;
  u32 block[3];
  u32 repeats;
  int64_t offset;
  u64 pc, other_pc;
};

struct Settings {  // written by module.py
  u64 seed;
  int late, checks, warp_size, unused;
  double timeout_seconds;
};

struct Counters {  // read by report.py, in this order
  u64 blocks, switches, accesses, global_read_bytes, global_written_bytes, shared_read_bytes, shared_written_bytes;
  u64 barriers, warp_barriers, shuffles, votes, ldmatrix, ldmatrix_wavefronts, stmatrix, stmatrix_wavefronts;
  u64 mma, cp_async, cp_async_bytes, atomics, global_requests, global_sectors, shared_requests, shared_wavefronts;
  u64 direct_loads;
};

// ---- memory under watch ------------------------------------------------------------------------------------------------
// An epoch names a moment of a thread: atomic flag, thread + 1, clock. 0: never.
typedef u32 Epoch;
constexpr u32 kAtomic = 0x80000000u;
constexpr u32 kClockBits = 20, kClockMask = (1u << kClockBits) - 1;

struct Cell {  // last write and the reads since, of 1 to 16 bytes
  Epoch write;
  Epoch read[3];  // or kManyReads, index of a list of clocks per thread
  u32 write_block, read_block;  // block + 1; read_block has kOtherBlocks if further blocks have read
  u32 write_pc;                 // relative to the kernel's image
  u32 unused;
};
constexpr u32 kManyReads = 0xffffffffu, kOtherBlocks = 0x80000000u;

struct Granule {  // 16 bytes; one cell for all of them until someone touches a part
  Cell whole;
  Cell* parts;
  u8 level;            // 2^level cells
  uint16_t in_flight;  // bytes that an asynchronous copy is about to write
  uint16_t issuer;     // its thread
};

struct Space {
  u8 *low, *high;
  Granule* granules;
  bool writable, initialized, global;
  int index;  // in the launch's list of buffers; -1: shared memory
};

// ---- threads -----------------------------------------------------------------------------------------------------------
struct Row {  // what a thread knows of the others' clocks; shared by those that met at a barrier
  int references;
  u32 clock[kMaxThreads];
};

struct Copy {
  u8* destination;
  const u8* source;
  int bytes;
  bool valid;
  const void* pc;
};

enum Operation : int {
  kRunning, kAtBarrier, kSyncWarp, kShuffle, kBallot, kLdmatrix, kStmatrix, kMma, kDirectLoad, kDone
};

struct Thread {
  tl_emu_self_t* self;
  void* stack_pointer;
  int id, warp, lane;
  Operation at;     // what it waits for
  int barrier;
  void* operands;   // of the collective that it waits in
  const void* pc;   // where
  Row* row;
  u32 clock;
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
  int threads, warps, finished;
  u32 number;  // + 1; unique in the launch
  u64 runnable_warps;
  u32 shared_bytes;
};

extern Settings settings;
extern Counters counters;
extern Thread threads[kMaxThreads];
extern Warp warps[kMaxWarps];
extern Block block;
extern Thread* current;
extern Space shared_space;
extern bool launched;

// launch.cpp
u32 random_number();
[[noreturn]] void abandon();  // leave the kernel for the launcher
bool add_finding(Kind kind, const Space* space, const void* address, int size, int other, const void* pc, u64 other_pc,
                 int code = 0);
[[noreturn]] void fail(Kind kind, const void* pc, int other = -1, int code = 0);
u64 image_base();

// fibers.cpp
void wait_here();             // run others until someone makes this thread runnable
void give_way();              // let others run once
void make_runnable(Thread* thread);
void make_lanes_runnable(int warp, u64 lanes);
void map_stacks();
void start_block_threads(void (*entry)(void**), void** arguments, const tl_emu_self_t& common);
bool run_block();             // false: abandoned
bool on_stacks(const void* p);

// shadow.cpp
void reset_clocks();
void join_clocks(Thread* const* members, int count);
void check_cells(Space& space, const u8* address, u32 size, bool write, bool atomic, const void* pc);
void mark_in_flight(Space& space, const u8* address, u32 size, const void* pc);
void land(Space& space, const u8* address, u32 size);
void reset_shadow(Space& space, u32 bytes);
void settle_same_value();
void forget_pending();

// memory.cpp
enum Access { kRead, kWrite, kAtomicUpdate };
Space* check_access(const void* address, u32 size, Access access, const void* pc, bool aligned);

// async_copy.cpp
void reset_copies(Thread& thread);

// direct_load.cpp
void reset_loads(Thread& thread);

#define TL_EMU_PC __builtin_return_address(0)

}  // namespace emu
