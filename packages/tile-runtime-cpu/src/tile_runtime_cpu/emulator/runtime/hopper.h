// What the parts that emulate Hopper's asynchronous work share: mbarriers, bulk copies, wgmma, clusters.
//
// Asynchronous work has actors of its own (agents) in the clocks. Data that a copy brings are written by the agent of the
// mbarrier that it signals, at the phase that its bytes end: who has waited for that phase has seen the write, nobody else
// has. What wgmma read, it has read by the agent of its warpgroup, at the wait.
#pragma once

#include "state.h"

namespace emu {

struct RegisterRange {  // registers of a thread that a wgmma uses or has used
  const u8 *low, *high;
  int uses;      // by wgmma that have not been waited for
  bool touched;  // by ordinary instructions since the last wgmma_fence
};

struct Transfer;

struct AsyncThread {  // what a thread has under way
  std::vector<RegisterRange> registers;
  bool fenced;                                 // wgmma_fence since the last wait
  std::vector<u32> proxy_fences, init_fences;  // clocks, rising
  Row* fence_row;                              // what it knew at its last proxy fence
  std::vector<Transfer*> open;                 // stores since the last commit
  std::vector<std::vector<Transfer*>> groups;
  bool trying;               // waits in a try_wait, which may come back empty-handed
  u64 gave_up;               // when it last did, in steps of progress; nothing has changed since: it never ends
};

extern AsyncThread async_threads[kMaxResident];
inline AsyncThread& own_async() { return async_threads[current->id]; }

struct Mbarrier {
  u8* address;
  int rank, agent;
  u32 expected, pending, phase;
  int64_t outstanding;  // bytes
  Epoch initialized;
  Row *arriving, *completed;
  std::vector<Thread*> waiting;
  bool live;
  bool observed;  // somebody has waited for the last phase that ended
  bool awaited;   // somebody has waited for any of them
  bool lapped;    // a phase has ended before anybody waited for the one before
};

// mbarrier.cpp
Mbarrier* find_mbarrier(const void* address, const void* pc);
void arrive(Mbarrier& barrier, u32 count, const void* pc);
void complete_bytes(Mbarrier& barrier, u32 bytes, const void* pc);
bool seen_by_proxy(Epoch write, const Actor& actor);
bool let_go_for_proxy(Epoch use, const Actor& actor);
void check_init_fence(const Mbarrier& barrier, const void* pc);
Mbarrier* remote_mbarrier(void* own, int rank, const void* pc);
void reset_mbarriers();
bool let_one_give_up();
inline Epoch next_phase(const Mbarrier& b) { return epoch_of(b.agent, b.phase + 1); }

// tma.cpp
bool complete_some_transfer();  // late mode: one of those under way, at random
void drop_transfers();
void check_nothing_under_way();  // a block ends: loads and arrivals must have come
void finish_stores();           // of the current thread, which ends
void wait_for_copies(Mbarrier& barrier, const void* pc);

// wgmma.cpp
void reset_warpgroups();
void check_registers(const void* address, u32 size, const void* pc);

// cluster.cpp
void check_remote(const Space& space, const void* pc);
void reset_cluster();
void leave_cluster();           // the current thread ends

// All of them.
int issuer_of(int agent);       // a thread to name for an agent
void set_issuer(int agent, int thread);
bool let_time_pass();           // nobody can run: something asynchronous happens; false: nothing is left
void reset_asynchronous_work();
void end_asynchronous_work();   // the current thread ends
void end_block();               // all have ended

}  // namespace emu
