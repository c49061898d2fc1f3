// mbarriers and proxy fences (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier", "Memory
// Consistency Model: Proxies").
//
// The state lives here; the 8 bytes in shared memory are marked, and an ordinary access of them is a finding. A phase holds a
// row of clocks: arrivals merge into it, who waits takes it over.
#include <algorithm>

#include "hopper.h"
#include "launch.h"
#include "state.h"

namespace emu {

static std::vector<Mbarrier> mbarriers;
static uint16_t number_at[kMaxBlocks][kSharedBytes / 8];  // + 1
static u64 progress;  // phases that have ended

void reset_mbarriers() {
  for (Mbarrier& b : mbarriers) {
    number_at[b.rank][(b.address - shared_spaces[b.rank].low) / 8] = 0;
    drop_row(b.arriving);
    drop_row(b.completed);
  }
  mbarriers.clear();
  mbarriers.reserve(kMaxAgents);  // addresses of elements are kept
}

static Row* held_row() {
  Row* row = new_row();
  row->references = 1;
  return row;
}

static uint16_t* number_of(const void* address, const void* pc) {
  Space* space = shared_at(address);
  const u8* p = (const u8*)address;
  if (!space || p < space->low || p + 8 > space->high) {
    add_finding(kOutOfBounds, space ? space : &own_shared(), address, 8, -1, pc, 0, kWrite);
    abandon();
  }
  if ((u64)p % 8) {
    add_finding(kMisaligned, space, address, 8, -1, pc, 0, kWrite);
    abandon();
  }
  return &number_at[space - shared_spaces][(p - space->low) / 8];
}

static void mark(const Space& space, const u8* address, bool live) {
  Granule& g = space.granules[(address - space.low) / 16];
  u8 half = (address - space.low) % 16 ? 2 : 1;
  g.mbarriers = live ? g.mbarriers | half : g.mbarriers & (u8)~half;
}

static bool has_seen(Epoch epoch, const Row& row, int self) {
  int actor = (int)((epoch & ~kAtomic) >> clock_bits) - 1;
  return actor == self || (epoch & clock_mask) <= row.at(actor);
}

Mbarrier* find_mbarrier(const void* address, const void* pc) {
  current->pc = pc;
  uint16_t number = *number_of(address, pc);
  Space* space = shared_at(address);
  if (!number || !mbarriers[number - 1u].live) {
    add_finding(kNoMbarrier, space, address, 8, -1, pc, 0, 0);
    abandon();
  }
  Mbarrier& b = mbarriers[number - 1u];
  if (settings.checks && !has_seen(b.initialized, *current->row, current->id)) {
    add_finding(kNoMbarrier, space, address, 8, (int)(b.initialized >> clock_bits) - 1, pc, 0, 1);
  }
  return &b;
}

// A wait tells phases apart by their parity: who is two phases late waits forever, or not at all. Phases that nobody ever
// waits for harm nobody.
static void end_phase(Mbarrier& b, const void* pc) {
  if (b.phase && !b.observed) {
    b.lapped = true;
    if (b.awaited && settings.checks) {
      add_finding(kOverArrival, &shared_spaces[b.rank], b.address, 8, -1, pc, 0, -2);
      abandon();
    }
  }
  b.observed = !b.waiting.empty();
  ++progress;
  ++b.phase;
  b.pending = b.expected;
  drop_row(b.completed);
  b.completed = b.arriving;
  Row& row = *b.completed;
  for (int i = row.columns; i <= b.agent; ++i) row.clock[i] = 0;
  row.columns = std::max(row.columns, b.agent + 1);
  row.clock[b.agent] = b.phase;
  b.arriving = held_row();
  merge(*b.arriving, row);
  for (Thread* t : b.waiting) {
    acquire(*t, b.completed);
    t->at = kRunning;
    make_runnable(t);
  }
  b.waiting.clear();
}

static void end_phase_if_complete(Mbarrier& b, const void* pc) {
  if (b.pending == 0 && b.outstanding == 0) end_phase(b, pc);
}

void arrive(Mbarrier& b, u32 count, const void* pc) {
  if (count > b.pending) {
    add_finding(kOverArrival, &shared_spaces[b.rank], b.address, 8, -1, pc, 0, (int)b.expected);
    abandon();
  }
  b.pending -= count;
  end_phase_if_complete(b, pc);
}

static void expect_bytes(Mbarrier& b, u32 bytes, const void* pc) {
  b.outstanding += bytes;
  if (b.outstanding >= 1 << 20 || bytes >= 1u << 20) {
    add_finding(kTransactionCount, &shared_spaces[b.rank], b.address, 8, -1, pc, 0, (int)b.outstanding);
    abandon();
  }
}

void complete_bytes(Mbarrier& b, u32 bytes, const void* pc) {
  b.outstanding -= bytes;
  if (b.outstanding <= -(1 << 20)) {
    add_finding(kTransactionCount, &shared_spaces[b.rank], b.address, 8, -1, pc, 0, (int)b.outstanding);
    abandon();
  }
  end_phase_if_complete(b, pc);
}

// The generic proxy's write is visible to the asynchronous one if its thread has made a proxy fence after it, before it
// released what the actor has seen, or if the actor's thread has made one since it saw the write.
static bool fenced(const std::vector<u32>& fences, Epoch write, const Actor& actor) {
  int writer = (int)((write & ~kAtomic) >> clock_bits) - 1;
  auto fence = std::lower_bound(fences.begin(), fences.end(), write & clock_mask);
  return fence != fences.end() && (writer == actor.self || *fence <= actor.row->at(writer));
}

bool seen_by_proxy(Epoch write, const Actor& actor) {
  int writer = (int)((write & ~kAtomic) >> clock_bits) - 1;
  if (writer >= block.slots || fenced(async_threads[writer].proxy_fences, write, actor)) return true;
  const Row* row = actor.self >= 0 ? async_threads[actor.self].fence_row : nullptr;
  return row && has_seen(write, *row, -1);
}

// The asynchronous proxy may write where the generic one has been: the thread that was there has made a proxy fence after
// its access, before it released what the actor has seen. A fence by another thread does not wait for its loads.
bool let_go_for_proxy(Epoch use, const Actor& actor) {
  int user = (int)((use & ~kAtomic) >> clock_bits) - 1;
  return user >= block.slots || fenced(async_threads[user].proxy_fences, use, actor);
}

// An asynchronous copy will signal it: the initialization must be visible to the asynchronous proxy too.
void check_init_fence(const Mbarrier& b, const void* pc) {
  int writer = (int)(b.initialized >> clock_bits) - 1;
  const AsyncThread& t = async_threads[writer];
  Actor actor = this_thread();
  if (!settings.checks || !has_seen(b.initialized, *actor.row, actor.self)) return;  // found already
  if (fenced(t.init_fences, b.initialized, actor) || fenced(t.proxy_fences, b.initialized, actor)) return;
  if (own_async().fence_row && has_seen(b.initialized, *own_async().fence_row, -1)) return;
  add_finding(kProxyFence, &shared_spaces[b.rank], b.address, 8, writer, pc, 0, 1);
}

static bool ended(const Mbarrier& b, u32 parity) { return (b.phase & 1) != (parity & 1); }

// A thread that may give up comes back with false once nothing else can happen.
static bool await(Mbarrier& b, u32 parity, bool may_give_up, const void* pc) {
  b.awaited = true;
  if (b.lapped && settings.checks) {
    add_finding(kOverArrival, &shared_spaces[b.rank], b.address, 8, -1, pc, 0, -3);
    abandon();
  }
  if (ended(b, parity)) {
    b.observed = true;
    if (b.completed) acquire(*current, b.completed);
    return true;
  }
  Thread* self = current;
  self->at = kAtMbarrier;
  self->barrier = (int)(b.address - shared_spaces[b.rank].low);
  own_async().trying = may_give_up;
  b.waiting.push_back(self);
  wait_here();
  return ended(b, parity);
}

// Of those in a try_wait one comes back empty-handed. A thread that did so before, with no phase ended since, waits forever.
bool let_one_give_up() {
  for (Mbarrier& b : mbarriers) {
    for (size_t i = 0; i < b.waiting.size(); ++i) {
      Thread* t = b.waiting[i];
      AsyncThread& state = async_threads[t->id];
      if (!state.trying || state.gave_up == progress + 1) continue;
      state.gave_up = progress + 1;
      b.waiting.erase(b.waiting.begin() + (long)i);
      t->at = kRunning;
      make_runnable(t);
      return true;
    }
  }
  return false;
}

Mbarrier* remote_mbarrier(void* barrier, int rank, const void* pc) {
  if ((u32)rank >= (u32)block.size) fail(kBadDescriptor, pc, -1, rank);
  u64 offset = (u64)((u8*)barrier - own_shared().low);
  Space& space = shared_spaces[rank];
  return find_mbarrier(space.low + offset, pc);
}

}  // namespace emu

using namespace emu;

extern "C" {

void tl_emu_mbarrier_init(void* address, unsigned count) {
  const void* pc = TL_EMU_PC;
  settle_same_value();
  current->pc = pc;
  address = through_window(address, 8, kWrite, pc);
  uint16_t* number = number_of(address, pc);
  Space& space = own_shared();
  if (count == 0 || count >= 1u << 20) {
    add_finding(kOverArrival, &space, address, 8, -1, pc, 0, -1);
    abandon();
  }
  Mbarrier* b;
  if (*number) {
    b = &mbarriers[*number - 1u];
    if (b->live) {
      add_finding(kNoMbarrier, &space, address, 8, -1, pc, 0, 2);
      abandon();
    }
  } else {
    mbarriers.push_back({});
    *number = (uint16_t)mbarriers.size();
    b = &mbarriers.back();
    b->address = (u8*)address;
    b->rank = current->rank;
  }
  b->agent = new_agent();
  if (settings.checks) check_access(address, 8, kWrite, pc, true);
  drop_row(b->arriving);
  drop_row(b->completed);
  b->arriving = held_row();
  b->completed = nullptr;
  b->expected = b->pending = count;
  b->outstanding = 0;
  b->phase = 0;
  b->initialized = this_thread().epoch;
  b->live = true;
  b->observed = b->awaited = b->lapped = false;
  if (settings.checks) mark(space, b->address, true);
}

void tl_emu_mbarrier_inval(void* address) {
  const void* pc = TL_EMU_PC;
  Mbarrier* b = find_mbarrier(through_window(address, 8, kWrite, pc), pc);
  if (!b->waiting.empty()) fail(kNoMbarrier, pc, b->waiting[0]->id, 3);
  b->live = false;
  if (settings.checks) mark(own_shared(), b->address, false);
}

// rank -1: of this block
void tl_emu_mbarrier_arrive(void* address, int rank, unsigned count, unsigned bytes, int arrives) {
  const void* pc = TL_EMU_PC;
  settle_same_value();
  address = through_window(address, 8, kWrite, pc);
  Mbarrier* b = rank < 0 ? find_mbarrier(address, pc) : remote_mbarrier(address, rank, pc);
  if (b->rank != current->rank) check_remote(shared_spaces[b->rank], pc);
  expect_bytes(*b, bytes, pc);
  if (!arrives) return;
  ++counters.mbarrier_arrivals;
  release_to(*b->arriving, *current);
  arrive(*b, count, pc);
}

int tl_emu_mbarrier_wait(void* address, unsigned parity, int mode) {  // 0: test, 1: try, 2: wait
  const void* pc = TL_EMU_PC;
  settle_same_value();
  Mbarrier* b = find_mbarrier(through_window(address, 8, kRead, pc), pc);
  if (mode == 0 && !ended(*b, parity)) {
    give_way();  // so that a loop of tests comes to an end
    if (!ended(*b, parity)) return 0;
  }
  // A warp may come late to its wait: others go far meanwhile, and perhaps end the phase, or the one after it.
  if (mode == 2 && settings.seed && current->lane == 0 && random_number() % 8 == 0) {
    for (u32 turns = random_number() & 255; turns; --turns) give_way();
  }
  ++counters.mbarrier_waits;
  return await(*b, parity, mode == 1, pc);
}

void tl_emu_fence(int proxy) {  // 0: of mbarrier initializations, 1: of the asynchronous proxy
  settle_same_value();
  AsyncThread& self = own_async();
  (proxy ? self.proxy_fences : self.init_fences).push_back(current->clock);
  if (proxy) {
    drop_row(self.fence_row);
    self.fence_row = current->row;
    ++self.fence_row->references;
  }
  tick(*current);
}

void tl_emu_cp_async_mbarrier_arrive(void* address) {
  const void* pc = TL_EMU_PC;
  settle_same_value();
  wait_for_copies(*find_mbarrier(through_window(address, 8, kWrite, pc), pc), pc);
}
}
