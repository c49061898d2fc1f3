// Barriers, and what the lanes of a warp do together: each lane leaves its operands and waits, the last one does the
// work for all. Only barriers order memory; the other collectives do not (PTX ISA, "Memory Consistency Model").
#include "launch.h"
#include "state.h"

namespace emu {

struct Barrier {
  int count, arrived;  // arrived: without waiting
  Row* past;           // of those
  const void* pc;      // of the last of them
  std::vector<Thread*> members;
};
static Barrier barriers[kMaxBlocks][16];

void reset_barriers() {
  for (auto& of_block : barriers) {
    for (Barrier& b : of_block) {
      b.members.clear();
      b.arrived = 0;
      drop_row(b.past);
      b.past = nullptr;
    }
  }
}

// The last thread of a block has ended: a barrier that some have arrived at must have let others pass.
void check_barriers() {
  for (auto& of_block : barriers) {
    for (Barrier& b : of_block) {
      if (b.arrived) fail(kIncompleteBarrier, b.pc, -1, (int)(&b - of_block));
    }
  }
}

// True for the last lane, with the others released (they run when this one waits next).
static bool meet(Operation operation, void* operands, const void* pc) {
  settle_same_value();
  Thread* self = current;
  Warp& warp = warps[self->warp];
  if (warp.arrived && warp.at != operation) {
    int other = __builtin_ctzll(warp.arrived);
    self->at = operation;
    self->pc = pc;
    add_finding(kDiverged, nullptr, nullptr, 0, threads[self->warp * settings.warp_size + other].id, pc,
                (u64)threads[self->warp * settings.warp_size + other].pc, warp.at);
    abandon();
  }
  warp.at = operation;
  self->operands = operands;
  self->pc = pc;
  u64 bit = 1ull << self->lane;
  warp.arrived |= bit;
  if (warp.arrived != warp.all) {
    for (int lane = 0; lane < settings.warp_size; ++lane) {
      int t = self->warp * settings.warp_size + lane;
      if (warp.all >> lane & 1 && threads[t].at == kDone) fail(kExited, pc, t, operation);
    }
    self->at = operation;
    wait_here();
    return false;
  }
  warp.arrived = 0;
  u64 others = warp.all & ~bit;
  for (u64 lanes = others; lanes; lanes &= lanes - 1) {
    threads[self->warp * settings.warp_size + __builtin_ctzll(lanes)].at = kRunning;
  }
  make_lanes_runnable(self->warp, others);
  return true;
}

static Barrier& barrier_of(int number, int count) {
  Thread* self = current;
  if (number < 0 || number > 15) fail(kBadBarrier, self->pc, -1, number);
  Barrier& b = barriers[self->rank][number];
  if (b.members.empty() && !b.arrived) b.count = count;
  if (b.count != count || count > block.threads || (count % 32 && count != block.threads)) {
    fail(kBadBarrier, self->pc, b.members.empty() ? -1 : b.members[0]->id, number);
  }
  return b;
}

static void open_barrier_if_complete(Barrier& b) {
  if ((int)b.members.size() + b.arrived < b.count) return;
  ++counters.barriers;
  if (!b.members.empty()) join_clocks(b.members.data(), (int)b.members.size());
  for (Thread* t : b.members) {
    if (b.past) acquire(*t, b.past);
    t->at = kRunning;
    if (t != current) make_runnable(t);
  }
  b.members.clear();
  b.arrived = 0;
  drop_row(b.past);
  b.past = nullptr;
}

static Thread* lanes_of_warp() { return &threads[current->warp * settings.warp_size]; }

struct Shuffle {
  u64 value, result;
  int mode, argument;
};

static int source_lane(int lane, int mode, int argument) {
  int width = settings.warp_size;
  int source = mode == TL_SHUFFLE_XOR    ? lane ^ argument
               : mode == TL_SHUFFLE_DOWN ? lane + argument
               : mode == TL_SHUFFLE_UP   ? lane - argument
                                         : argument & (width - 1);
  return source < 0 || source >= width ? lane : source;
}

struct Rows {
  u32* registers;
  const uint16_t* row;
  int count, transposed;
};

// Wavefronts of 8 rows of 16 bytes: rows in the same banks take turns, equal addresses do not.
static u64 wavefronts(const Thread* lanes, int matrix) {
  u64 worst = 1;
  for (int quad = 0; quad < 8; ++quad) {  // 32 banks of 4 bytes are 8 places of 16
    u64 turns = 0;
    for (int i = 0; i < 8; ++i) {
      u64 a = (u64)((const Rows*)lanes[matrix * 8 + i].operands)->row;
      if ((a >> 4 & 7) != (u64)quad) continue;
      bool repeated = false;
      for (int j = 0; j < i; ++j) repeated |= a == (u64)((const Rows*)lanes[matrix * 8 + j].operands)->row;
      turns += !repeated;
    }
    if (turns > worst) worst = turns;
  }
  return worst;
}

static uint16_t* element(const Thread* lanes, int matrix, int row, int column) {
  return (uint16_t*)((const Rows*)lanes[matrix * 8 + row].operands)->row + column;
}

// Visits every 16-bit half of every register: lane l, half h of register m is row l / 4, column 2 * (l % 4) + h.
template <class Visit>
static void for_each_half(const Thread* lanes, const Rows& rows, Visit visit) {
  for (int m = 0; m < rows.count; ++m) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int half = 0; half < 2; ++half) {
        int r = lane / 4, c = lane % 4 * 2 + half;
        uint16_t* reg = (uint16_t*)(((const Rows*)lanes[lane].operands)->registers + m) + half;
        visit(reg, rows.transposed ? element(lanes, m, c, r) : element(lanes, m, r, c));
      }
    }
  }
}

}  // namespace emu

using namespace emu;

extern "C" {

void tl_emu_sync_threads(int number, int count) {
  settle_same_value();
  Thread* self = current;
  self->pc = TL_EMU_PC;
  if (count == 0) count = block.threads;
  Barrier& b = barrier_of(number, count);
  b.members.push_back(self);
  if ((int)b.members.size() + b.arrived < count) {
    self->at = kAtBarrier;
    self->barrier = number;
    wait_here();
    return;
  }
  open_barrier_if_complete(b);
  give_way();  // who was last must not always be first
}

void tl_emu_arrive_threads(int number, int count) {
  settle_same_value();
  current->pc = TL_EMU_PC;
  Barrier& b = barrier_of(number, count);
  ++b.arrived;
  b.pc = current->pc;
  if (!b.past) {
    b.past = new_row();
    b.past->references = 1;
  }
  release_to(*b.past, *current);
  open_barrier_if_complete(b);
}

void tl_emu_sync_warp() {
  if (!meet(kSyncWarp, nullptr, TL_EMU_PC)) return;
  ++counters.warp_barriers;
  Thread* members[64];
  int count = 0;
  for (int lane = 0; lane < settings.warp_size; ++lane) {
    if (warps[current->warp].all >> lane & 1) members[count++] = lanes_of_warp() + lane;
  }
  join_clocks(members, count);
}

u64 tl_emu_shuffle(u64 value, int mode, int argument) {
  Shuffle own{value, value, mode, argument};
  if (meet(kShuffle, &own, TL_EMU_PC)) {
    ++counters.shuffles;
    Thread* lanes = lanes_of_warp();
    u64 all = warps[current->warp].all;
    for (int lane = 0; lane < settings.warp_size; ++lane) {
      if (!(all >> lane & 1)) continue;
      Shuffle* s = (Shuffle*)lanes[lane].operands;
      int source = source_lane(lane, s->mode, s->argument);
      if (all >> source & 1) s->result = ((Shuffle*)lanes[source].operands)->value;
    }
  }
  return own.result;
}

u64 tl_emu_ballot(int predicate) {
  Shuffle own{(u64)(predicate != 0), 0, 0, 0};
  if (meet(kBallot, &own, TL_EMU_PC)) {
    ++counters.votes;
    Thread* lanes = lanes_of_warp();
    u64 all = warps[current->warp].all, votes = 0;
    for (int lane = 0; lane < settings.warp_size; ++lane) {
      if (all >> lane & 1) votes |= ((Shuffle*)lanes[lane].operands)->value << lane;
    }
    for (int lane = 0; lane < settings.warp_size; ++lane) {
      if (all >> lane & 1) ((Shuffle*)lanes[lane].operands)->result = votes;
    }
  }
  return own.result;
}

void tl_emu_ldmatrix(void* registers, const void* row, int count, int transposed) {
  const void* pc = TL_EMU_PC;
  if (current->lane < 8 * count) {
    row = through_window(row, 16, kRead, pc);
    check_shared(row, 16, kRead, pc);
  }
  Rows own{(u32*)registers, (const uint16_t*)row, count, transposed};
  if (!meet(kLdmatrix, &own, pc)) return;
  Thread* lanes = lanes_of_warp();
  ++counters.ldmatrix;
  for (int m = 0; m < count; ++m) counters.ldmatrix_wavefronts += wavefronts(lanes, m);
  for_each_half(lanes, own, [](uint16_t* reg, const uint16_t* memory) { *reg = *memory; });
}

void tl_emu_stmatrix(void* row, const void* registers, int count, int transposed) {
  const void* pc = TL_EMU_PC;
  if (current->lane < 8 * count) {
    row = through_window(row, 16, kWrite, pc);
    check_shared(row, 16, kWrite, pc);
  }
  Rows own{(u32*)registers, (const uint16_t*)row, count, transposed};
  if (!meet(kStmatrix, &own, pc)) return;
  Thread* lanes = lanes_of_warp();
  ++counters.stmatrix;
  for (int m = 0; m < count; ++m) counters.stmatrix_wavefronts += wavefronts(lanes, m);
  for_each_half(lanes, own, [](const uint16_t* reg, uint16_t* memory) { *memory = *reg; });
}

void tl_emu_mma(void* c, const void* a, const void* b, int a_type, int b_type, int depth, int form) {
  MmaOperands own{c, a, b};
  if (!meet(kMma, &own, TL_EMU_PC)) return;
  ++counters.mma;
  MmaOperands* operands[32];
  for (int lane = 0; lane < 32; ++lane) operands[lane] = (MmaOperands*)lanes_of_warp()[lane].operands;
  multiply_accumulate(operands, (tl_emu_element)a_type, (tl_emu_element)b_type, depth, form);
}
}
