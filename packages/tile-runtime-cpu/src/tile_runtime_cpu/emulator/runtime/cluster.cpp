// Clusters (PTX ISA, "barrier.cluster", "mapa"), and what all asynchronous work has in common: when time passes, when a
// thread or a block ends.
#include "hopper.h"
#include "launch.h"
#include "state.h"

namespace emu {

AsyncThread async_threads[kMaxResident];
static int issuers[kMaxAgents];

struct ClusterBarrier {
  int arrived;
  u32 phase;
  Row *arriving, *completed;
  std::vector<Thread*> waiting;
};
static ClusterBarrier cluster_barrier;
static u32 arrived_in[kMaxResident];   // phase + 1 of each thread's last arrival
static int ended_in_block[kMaxBlocks];

struct RemoteAccess {  // a thread's last one to a block
  u32 clock;
  const void* pc;
};
static std::vector<RemoteAccess> remote_accesses[kMaxBlocks];  // by thread

int issuer_of(int agent) { return issuers[agent - block.slots]; }
void set_issuer(int agent, int thread) { issuers[agent - block.slots] = thread; }

void reset_cluster() {
  ClusterBarrier& b = cluster_barrier;
  drop_row(b.arriving);
  drop_row(b.completed);
  b.arriving = new_row();
  b.arriving->references = 1;
  b.completed = nullptr;
  b.arrived = 0;
  b.phase = 0;
  b.waiting.clear();
  for (u32& phase : arrived_in) phase = 0;
  for (int& count : ended_in_block) count = 0;
  for (int rank = 0; rank < block.size; ++rank) remote_accesses[rank].assign((size_t)block.slots, {});
}

// Threads that have ended are not waited for.
static void end_cluster_phase_if_complete() {
  ClusterBarrier& b = cluster_barrier;
  if (b.arrived == 0 || b.arrived < block.threads * block.size - block.finished) return;
  ++b.phase;
  ++counters.barriers;
  b.arrived = 0;
  drop_row(b.completed);
  b.completed = b.arriving;
  b.arriving = new_row();
  b.arriving->references = 1;
  merge(*b.arriving, *b.completed);
  for (Thread* t : b.waiting) {
    acquire(*t, b.completed);
    t->at = kRunning;
    make_runnable(t);
  }
  b.waiting.clear();
}

void leave_cluster() {
  ++ended_in_block[current->rank];
  if (arrived_in[current->id] == cluster_barrier.phase + 1) --cluster_barrier.arrived;
  ++block.finished;
  end_cluster_phase_if_complete();
  --block.finished;  // its caller counts
}

void check_remote(const Space& space, const void* pc) {
  int rank = (int)(&space - shared_spaces);
  if (ended_in_block[rank] == block.threads) fail(kBlockHasEnded, pc, -1, rank);
  remote_accesses[rank][current->id] = {current->clock, pc};
}

// Each access to another block must be over for one of its threads, which then keeps the block alive until it has ended.
static void check_lifetimes() {
  int per_block = block.slots / block.size;
  for (int rank = 0; rank < block.size; ++rank) {
    for (int t = 0; t < block.slots; ++t) {
      const RemoteAccess& access = remote_accesses[rank][t];
      bool seen = access.clock == 0;
      for (int i = 0; i < block.threads && !seen; ++i) seen = threads[rank * per_block + i].row->at(t) >= access.clock;
      if (seen) continue;
      current = &threads[t];
      fail(kBlockHasEnded, access.pc, -1, rank);
    }
  }
}

bool let_time_pass() { return complete_some_transfer() || let_one_give_up(); }

void reset_asynchronous_work() {
  drop_transfers();
  reset_mbarriers();
  reset_warpgroups();
  reset_cluster();
  for (int t = 0; t < block.slots; ++t) {
    AsyncThread& state = async_threads[t];
    state.registers.clear();
    state.proxy_fences.clear();
    state.init_fences.clear();
    drop_row(state.fence_row);
    state.fence_row = nullptr;
    state.fenced = state.trying = false;
    state.gave_up = 0;
  }
}

void end_asynchronous_work() {
  finish_stores();
  leave_cluster();
}

void end_block() {
  check_nothing_under_way();
  check_barriers();
  if (settings.checks && block.size > 1) check_lifetimes();
}

}  // namespace emu

using namespace emu;

extern "C" {

void tl_emu_cluster_arrive(int releases) {
  const void* pc = TL_EMU_PC;
  settle_same_value();
  Thread* self = current;
  self->pc = pc;
  ClusterBarrier& b = cluster_barrier;
  if (arrived_in[self->id] == b.phase + 1) fail(kBadBarrier, pc, -1, -1);
  arrived_in[self->id] = b.phase + 1;
  ++b.arrived;
  if (releases) release_to(*b.arriving, *self);
  end_cluster_phase_if_complete();
}

void tl_emu_cluster_wait() {
  settle_same_value();
  Thread* self = current;
  self->pc = TL_EMU_PC;
  ClusterBarrier& b = cluster_barrier;
  if (arrived_in[self->id] == 0) fail(kBadBarrier, self->pc, -1, -2);
  if (arrived_in[self->id] == b.phase + 1) {
    self->at = kAtCluster;
    b.waiting.push_back(self);
    wait_here();
  } else {
    acquire(*self, b.completed);
  }
}

void* tl_emu_map(const void* shared, unsigned rank) {
  const void* pc = TL_EMU_PC;
  const u8* p = (const u8*)shared;
  Space* space = shared_at(through_window(p, 1, kRead, pc));
  if (!space || rank >= (unsigned)block.size) fail(kBadDescriptor, pc, -1, 3);
  return (void*)(p + (shared_spaces[rank].low - space->low));  // in the same window
}

int tl_emu_elect() {
  u64 lanes = tl_emu_ballot(1);
  return current->lane == __builtin_ctzll(lanes);
}
}
