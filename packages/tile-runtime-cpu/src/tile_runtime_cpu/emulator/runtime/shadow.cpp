// Who wrote and read each byte, and whether that is ordered: vector clocks in the manner of FastTrack (Flanagan, Freund,
// "FastTrack: Efficient and Precise Dynamic Race Detection", PLDI 2009).
//
// A thread's clock ticks when it leaves a barrier. An access A is ordered before what thread T does now if T's row of
// clocks has reached A's. Rows are shared by all who met at a barrier, so that a barrier costs one row, not one per thread.
#include <cstdlib>

#include "hopper.h"
#include "state.h"

namespace emu {

u32 clock_bits, clock_mask;

// ---- rows --------------------------------------------------------------------------------------------------------------
static std::vector<Row*> free_rows;

Row* new_row() {
  Row* row;
  if (free_rows.empty()) {
    row = (Row*)malloc(sizeof(Row));
  } else {
    row = free_rows.back();
    free_rows.pop_back();
  }
  row->references = row->columns = 0;
  row->others = nullptr;
  return row;
}

void drop_row(Row* row) {
  if (row && --row->references == 0) free_rows.push_back(row);
}

void set_row(Thread& thread, Row* row) {
  ++row->references;
  drop_row(thread.row);
  thread.row = row;
}

static void widen(Row& row, int columns) {
  if (columns <= row.columns) return;
  memset(row.clock + row.columns, 0, sizeof(u32) * (size_t)(columns - row.columns));
  row.columns = columns;
}

void merge(Row& into, const Row& from) {
  widen(into, from.columns);
  const u32* other = from.clock;
  for (int i = 0; i < from.columns; ++i) into.clock[i] = into.clock[i] > other[i] ? into.clock[i] : other[i];
  into.others = both(into.others, from.others);
}

static Row* copy_of(const Row& row) {
  Row* copy = new_row();
  copy->columns = row.columns;
  copy->others = row.others;
  memcpy(copy->clock, row.clock, sizeof(u32) * (size_t)row.columns);
  return copy;
}

void reset_clocks() {
  // Numbers of actors and clocks share 31 bits.
  clock_bits = block.slots <= kMaxThreads ? 20 : 18;
  clock_mask = (1u << clock_bits) - 1;
  block.agents = 0;
  Row* row = new_row();
  widen(*row, block.slots);
  for (int t = 0; t < block.slots; ++t) {
    set_row(threads[t], row);
    threads[t].clock = 1;
    threads[t].fenced = threads[t].met = nullptr;
  }
}

int new_agent() {
  if (block.agents == kMaxAgents) fail(kLimit, current->pc);
  return block.slots + block.agents++;
}

void tick(Thread& thread) {
  if (++thread.clock > clock_mask) fail(kLimit, thread.pc);
}

void join_clocks(Thread* const* members, int count) {
  Row* joined = copy_of(*members[0]->row);
  const Row* last = members[0]->row;
  for (int i = 1; i < count; ++i) {
    const Row* row = members[i]->row;
    if (row == last) continue;
    last = row;
    merge(*joined, *row);
  }
  for (int i = 0; i < count; ++i) joined->clock[members[i]->id] = members[i]->clock;
  for (int i = 0; i < count; ++i) {
    set_row(*members[i], joined);
    tick(*members[i]);
  }
}

void release_to(Row& row, Thread& thread) {
  merge(row, *thread.row);
  widen(row, thread.id + 1);
  row.clock[thread.id] = thread.clock;
  tick(thread);
}

// Threads that knew the same and learn the same share their new row: most often a whole warpgroup.
void acquire(Thread& thread, Row* row) {
  static Row *known, *learnt, *result;
  if (thread.row == row) return;
  if (known != thread.row || learnt != row) {
    for (Row* r : {known, learnt, result}) drop_row(r);
    known = thread.row;
    learnt = row;
    result = copy_of(*known);
    merge(*result, *learnt);
    for (Row* r : {known, learnt, result}) ++r->references;  // so that none of them becomes another row
  }
  set_row(thread, result);
}

void learn(Thread& thread, const Handed* handed) {
  Row* row = copy_of(*thread.row);
  row->others = both(row->others, handed);
  set_row(thread, row);
}

static inline int thread_of(Epoch e) { return (int)((e & ~kAtomic) >> clock_bits) - 1; }

static inline bool ordered(Epoch e, const Actor& actor) {
  int t = thread_of(e);
  return t == actor.self || (e & clock_mask) <= actor.row->at(t);
}

Epoch epoch_of(int actor, u32 clock) { return (Epoch)(actor + 1) << clock_bits | (clock & clock_mask); }
Actor this_thread() { return {current->row, current->id, epoch_of(current->id, current->clock)}; }

// ---- lists of readers, where three do not suffice ----------------------------------------------------------------------
static std::vector<std::vector<u32>> reader_lists;
static size_t used_lists;

static void add_reader(Cell& cell, Epoch epoch) {
  if (cell.read[0] != kManyReads) {
    if (used_lists == reader_lists.size()) reader_lists.emplace_back();
    std::vector<u32>& list = reader_lists[used_lists];
    list.assign((size_t)block.columns(), 0);
    for (Epoch e : cell.read) list[thread_of(e)] = e & clock_mask;
    cell.read[0] = kManyReads;
    cell.read[1] = (u32)used_lists++;
    cell.read[2] = 0;
  }
  std::vector<u32>& list = reader_lists[cell.read[1]];
  if ((int)list.size() < block.columns()) list.resize((size_t)block.columns(), 0);
  list[thread_of(epoch)] = epoch & clock_mask;
}

// A reader that is not ordered before now, or -1. Forgets all readers.
static int take_unordered_reader(Cell& cell, const Actor& actor) {
  int found = -1;
  if (cell.read[0] == kManyReads) {
    const std::vector<u32>& list = reader_lists[cell.read[1]];
    for (int t = 0; t < (int)list.size(); ++t) {
      if (list[t] > actor.row->at(t) && t != actor.self) found = t;
    }
  } else {
    for (Epoch e : cell.read) {
      if (e && !ordered(e, actor)) found = thread_of(e);
    }
  }
  cell.read[0] = cell.read[1] = cell.read[2] = 0;
  return found;
}

// A thread that has read there in the ordinary way and made no fence of the proxies since, or -1.
static int unfenced_reader(const Cell& cell, const Actor& actor) {
  if (cell.read[0] == kManyReads) {
    const std::vector<u32>& list = reader_lists[cell.read[1]];
    for (int t = 0; t < (int)list.size() && t < block.slots; ++t) {
      if (list[t] && !let_go_for_proxy(epoch_of(t, list[t]), actor)) return t;
    }
    return -1;
  }
  for (Epoch e : cell.read) {
    if (e && thread_of(e) < block.slots && !let_go_for_proxy(e, actor)) return thread_of(e);
  }
  return -1;
}

// ---- two threads that store one value ------------------------------------------------------------------------------------
// Replicated fragments are stored by all their holders, harmlessly. So the finding of a write after a write waits until
// the store has happened (at the next check) and is dropped if it changed nothing.
struct Pending {
  bool active;
  Space* space;
  const u8* address;
  u32 size;
  u8 before[64];
  Kind kind;
  int other;
  const void* pc;
  u64 other_pc;
  Thread* thread;
  int code;
};
static Pending pending;

void settle_same_value() {
  if (!pending.active) return;
  pending.active = false;
  if (memcmp(pending.before, pending.address, pending.size) == 0) return;
  Thread* self = current;
  current = pending.thread;
  add_finding(pending.kind, pending.space, pending.address, (int)pending.size, pending.other, pending.pc, pending.other_pc,
              pending.code);
  current = self;
}

static void suspect_write(Kind kind, Space& space, const u8* address, u32 size, int other, const void* pc, u64 other_pc,
                          int code = 0) {
  if (pending.active) return;
  pending = {true, &space, address, size < 64 ? size : 64, {}, kind, other, pc, other_pc, current, code};
  memcpy(pending.before, address, pending.size);
}

// ---- cells -----------------------------------------------------------------------------------------------------------------
struct Site {  // of the access that is being checked
  Space& space;
  const u8* address;
  u32 size;
  const void* pc;
  Actor actor;
  bool store;         // an ordinary one, which happens right after the check
  bool asynchronous;  // through the asynchronous proxy
};

static void found(Kind kind, const Site& site, int other, u64 other_pc, int code = 0) {
  add_finding(kind, &site.space, site.address, (int)site.size, other, site.pc, other_pc, code);
}

// Kind and other thread of an access that is not ordered after the cell's write.
static void found_unordered(Kind kind, Kind if_asynchronous, const Cell& cell, const Site& site, u64 other_pc) {
  int other = thread_of(cell.write);
  if (other < block.slots) found(kind, site, other, other_pc);
  else found(if_asynchronous, site, issuer_of(other), other_pc, 1);  // nobody waited at the agent's mbarrier
}

static u64 pc_of(const Cell& cell) { return cell.write_pc ? image_base() + cell.write_pc : 0; }

static inline void note_read(Cell& cell, const Actor& actor) {
  Epoch e = actor.epoch;
  if (cell.read[0] == kManyReads) return add_reader(cell, e);
  if (cell.read[0] == e || cell.read[1] == e || cell.read[2] == e) return;
  for (Epoch& slot : cell.read) {
    if (!slot || ordered(slot, actor)) {
      slot = e;
      return;
    }
  }
  add_reader(cell, e);
}

// Whether the cell's write, of another block, was handed on to this actor. Bulk copies would need fences of the proxies too.
static bool is_handed_on(const Cell& cell, const Site& site) {
  if (cell.asynchronous || site.asynchronous) return false;
  return is_handed(site.actor.row->others, cell.write_block, thread_of(cell.write), cell.write & clock_mask);
}

static inline void read_cell(Cell& cell, const Site& site) {
  if (!cell.write) {
    if (!site.space.initialized) found(kUninitialized, site, -1, 0);
  } else if (cell.write_block != block.number) {
    if (!is_handed_on(cell, site)) found(kBetweenBlocks, site, -1, pc_of(cell), (int)cell.write_block);
  } else if (!ordered(cell.write, site.actor)) {
    found_unordered(kReadAfterWrite, kReadInFlight, cell, site, pc_of(cell));
  } else if (site.asynchronous && !cell.asynchronous && !seen_by_proxy(cell.write, site.actor)) {
    found(kProxyFence, site, thread_of(cell.write), pc_of(cell));
  }
  if ((cell.read_block & ~kOtherBlocks) != block.number) {
    cell.read[0] = cell.read[1] = cell.read[2] = 0;
    cell.read_block = block.number | (cell.read_block ? kOtherBlocks : 0);
  }
  note_read(cell, site.actor);
}

static inline void write_cell(Cell& cell, const Site& site, bool atomic) {
  if (cell.write) {
    bool both_atomic = atomic && (cell.write & kAtomic);
    if (both_atomic) {
    } else if (cell.write_block != block.number) {
      int other = (int)cell.write_block;
      bool suspected = site.store;
      if (is_handed_on(cell, site)) suspected = false;
      else if (!suspected) found(kBetweenBlocks, site, -1, pc_of(cell), other);
      if (suspected) suspect_write(kBetweenBlocks, site.space, site.address, site.size, -1, site.pc, pc_of(cell), other);
    } else if (!ordered(cell.write, site.actor)) {
      int other = thread_of(cell.write);
      bool suspected = site.store && other < block.slots;
      if (suspected) suspect_write(kWriteAfterWrite, site.space, site.address, site.size, other, site.pc, pc_of(cell));
      else found_unordered(kWriteAfterWrite, kWriteInFlight, cell, site, pc_of(cell));
    } else if (site.asynchronous && !cell.asynchronous && !let_go_for_proxy(cell.write, site.actor)) {
      found(kProxyFence, site, thread_of(cell.write), pc_of(cell));
    }
  } else if (atomic && !site.space.initialized) {
    found(kUninitialized, site, -1, 0);
  }
  if (cell.read_block) {
    u32 reader = cell.read_block & ~kOtherBlocks;
    if (reader != block.number || (cell.read_block & kOtherBlocks)) {
      found(kBetweenBlocks, site, -1, 0, reader == block.number ? 0 : (int)reader);
      cell.read[0] = cell.read[1] = cell.read[2] = 0;
    } else {
      int unfenced = site.asynchronous ? unfenced_reader(cell, site.actor) : -1;
      int other = take_unordered_reader(cell, site.actor);
      if (other < 0 && unfenced >= 0) found(kProxyFence, site, unfenced, 0);
      if (other >= block.slots) found(kWriteUnderRead, site, issuer_of(other), 0);
      else if (other >= 0) found(kWriteAfterRead, site, other, 0);
    }
    cell.read_block = 0;
  }
  cell.write = site.actor.epoch | (atomic ? kAtomic : 0);
  cell.write_block = block.number;
  cell.write_pc = (u32)((u64)site.pc - image_base());
  cell.asynchronous = site.asynchronous;
}

// Bytes in units of 2^level parts; refining copies what is known to each part.
static void refine(Granule& g, int level) {
  Cell* parts = (Cell*)malloc(sizeof(Cell) << level);
  for (int i = 0; i < 1 << level; ++i) parts[i] = g.parts ? g.parts[i >> (level - g.level)] : g.whole;
  for (int i = 0; i < 1 << level; ++i) {  // a list of readers cannot be in two cells
    if (parts[i].read[0] == kManyReads && i) {
      if (used_lists == reader_lists.size()) reader_lists.emplace_back();
      std::vector<u32> copy = reader_lists[parts[i].read[1]];
      reader_lists[used_lists] = copy;
      parts[i].read[1] = (u32)used_lists++;
    }
  }
  free(g.parts);
  g.parts = parts;
  g.level = (u8)level;
}

static inline uint16_t byte_mask(u32 first, u32 count) { return (uint16_t)(((1u << count) - 1u) << first); }

// Visits the cells of an access, refined so that none is covered in part. before(granule, first byte, count) comes first.
template <class Before, class Visit>
static inline void for_each_cell(Space& space, const u8* address, u32 size, Before before, Visit visit) {
  u64 offset = (u64)(address - space.low);
  while (size) {
    Granule& g = space.granules[offset >> 4];
    u32 first = offset & 15, count = 16 - first < size ? 16 - first : size;
    before(g, first, count);
    u32 unit = (first | count | 16) & -(first | count | 16);  // the largest power of two that divides both
    if (unit < 16u >> g.level) refine(g, 4 - __builtin_ctz(unit));
    u32 log = 4 - g.level;
    Cell* cells = (g.parts ? g.parts : &g.whole) + (first >> log);
    for (u32 i = 0; i < count >> log; ++i) visit(cells[i]);
    offset += count;
    size -= count;
  }
}

// What an access may not meet, whoever has written and read before.
static inline void check_granule(Granule& g, u32 first, u32 count, const Site& site, bool write) {
  if (g.in_flight & byte_mask(first, count)) {
    found(write ? kWriteInFlight : kReadInFlight, site, g.issuer, pc_of(g.whole));
  }
  if (write && g.readers) found(kWriteUnderRead, site, g.issuer, 0);
  if (g.mbarriers && (g.mbarriers & ((first < 8 ? 1 : 0) | (first + count > 8 ? 2 : 0)))) found(kMbarrierAsData, site, -1, 0);
}

void check_cells(Space& space, const u8* address, u32 size, bool write, bool atomic, const void* pc) {
  note_access(space, address, size, write, atomic);
  Site site{space, address, size, pc, this_thread(), write && !atomic && size <= 64 && pc != nullptr, false};
  for_each_cell(
      space, address, size, [&](Granule& g, u32 first, u32 count) { check_granule(g, first, count, site, write); },
      [&](Cell& cell) {
        if (write) write_cell(cell, site, atomic);
        else read_cell(cell, site);
      });
}

void begin_write(Space& space, const u8* address, u32 size, const Actor& actor, const void* pc, bool atomic) {
  if (!settings.checks || !space.granules) return;
  note_access(space, address, size, true, atomic);
  Site site{space, address, size, pc, actor, false, true};
  for_each_cell(
      space, address, size,
      [&](Granule& g, u32 first, u32 count) {
        check_granule(g, first, count, site, true);
        g.whole.write_pc = (u32)((u64)pc - image_base());
        if (!atomic) g.in_flight |= byte_mask(first, count);  // updates of one place may be under way together
        g.issuer = (uint16_t)current->id;
      },
      [&](Cell& cell) { write_cell(cell, site, atomic); });
}

// The write happens now, as its issuer or those who wait know. (With the moment of the issue, a thread that signalled
// between issue and wait would seem to have published data that had not arrived.)
void end_write(Space& space, const u8* address, u32 size, Epoch epoch) {
  if (!settings.checks || !space.granules) return;
  for_each_cell(
      space, address, size, [](Granule& g, u32 first, u32 count) { g.in_flight &= (uint16_t)~byte_mask(first, count); },
      [&](Cell& cell) { cell.write = epoch | (cell.write & kAtomic); });
}

void begin_read(Space& space, const u8* address, u32 size, const Actor& actor, const void* pc) {
  if (!settings.checks || !space.granules) return;
  note_access(space, address, size, false, false);
  Site site{space, address, size, pc, actor, false, true};
  for_each_cell(
      space, address, size,
      [&](Granule& g, u32 first, u32 count) {
        check_granule(g, first, count, site, false);
        ++g.readers;
        g.issuer = (uint16_t)current->id;
      },
      [&](Cell& cell) { read_cell(cell, site); });
}

void end_read(Space& space, const u8* address, u32 size, const Actor& actor) {
  if (!settings.checks || !space.granules) return;
  for_each_cell(
      space, address, size, [](Granule& g, u32, u32) { --g.readers; }, [&](Cell& cell) { note_read(cell, actor); });
}

// A cp.async of 4, 8 or 16 aligned bytes: of the generic proxy, though asynchronous.
void mark_in_flight(Space& space, const u8* address, u32 size, const void* pc) {
  Site site{space, address, size, pc, this_thread(), false, false};
  for_each_cell(
      space, address, size,
      [&](Granule& g, u32 first, u32 count) {
        check_granule(g, first, count, site, true);
        g.whole.write_pc = (u32)((u64)pc - image_base());
        g.in_flight |= byte_mask(first, count);
        g.issuer = (uint16_t)current->id;
      },
      [&](Cell& cell) { write_cell(cell, site, false); });
}

void land(Space& space, const u8* address, u32 size) { end_write(space, address, size, this_thread().epoch); }

void forget_pending() { pending.active = false; }

void reset_shadow(Space& space, u32 bytes) {
  used_lists = 0;
  for (u32 i = 0; i < (bytes + 15) / 16; ++i) {
    free(space.granules[i].parts);
    space.granules[i] = Granule{};
  }
}

}  // namespace emu
