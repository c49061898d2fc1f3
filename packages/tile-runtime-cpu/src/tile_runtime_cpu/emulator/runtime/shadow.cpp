// Who wrote and read each byte, and whether that is ordered: vector clocks in the manner of FastTrack (Flanagan, Freund,
// "FastTrack: Efficient and Precise Dynamic Race Detection", PLDI 2009).
//
// A thread's clock ticks when it leaves a barrier. An access A is ordered before what thread T does now if T's row of
// clocks has reached A's. Rows are shared by all who met at a barrier, so that a barrier costs one row, not one per thread.
#include <cstdlib>

#include "state.h"

namespace emu {

static std::vector<Row*> free_rows;

static Row* new_row() {
  Row* row;
  if (free_rows.empty()) {
    row = (Row*)malloc(sizeof(Row));
  } else {
    row = free_rows.back();
    free_rows.pop_back();
  }
  row->references = 0;
  return row;
}

static void set_row(Thread& thread, Row* row) {
  ++row->references;
  if (thread.row && --thread.row->references == 0) free_rows.push_back(thread.row);
  thread.row = row;
}

void reset_clocks() {
  Row* row = new_row();
  memset(row->clock, 0, sizeof(u32) * block.threads);
  for (int t = 0; t < block.threads; ++t) {
    set_row(threads[t], row);
    threads[t].clock = 1;
  }
}

void join_clocks(Thread* const* members, int count) {
  Row* joined = new_row();
  memcpy(joined->clock, members[0]->row->clock, sizeof(u32) * block.threads);
  const Row* last = members[0]->row;
  for (int i = 1; i < count; ++i) {
    const Row* row = members[i]->row;
    if (row == last) continue;
    last = row;
    for (int t = 0; t < block.threads; ++t) {
      if (row->clock[t] > joined->clock[t]) joined->clock[t] = row->clock[t];
    }
  }
  for (int i = 0; i < count; ++i) joined->clock[members[i]->id] = members[i]->clock;
  for (int i = 0; i < count; ++i) {
    set_row(*members[i], joined);
    if (++members[i]->clock > kClockMask) fail(kLimit, members[i]->pc);
  }
}

static inline int thread_of(Epoch e) { return (int)((e & ~kAtomic) >> kClockBits) - 1; }

static inline bool ordered(Epoch e) {
  int t = thread_of(e);
  return t == current->id || (e & kClockMask) <= current->row->clock[t];
}

static inline Epoch now() { return (Epoch)(current->id + 1) << kClockBits | current->clock; }

// ---- lists of readers, where three do not suffice ----------------------------------------------------------------------
static std::vector<std::vector<u32>> reader_lists;
static size_t used_lists;

static void add_reader(Cell& cell) {
  if (cell.read[0] != kManyReads) {
    if (used_lists == reader_lists.size()) reader_lists.emplace_back();
    std::vector<u32>& list = reader_lists[used_lists];
    list.assign(block.threads, 0);
    for (Epoch e : cell.read) list[thread_of(e)] = e & kClockMask;
    cell.read[0] = kManyReads;
    cell.read[1] = (u32)used_lists++;
    cell.read[2] = 0;
  }
  reader_lists[cell.read[1]][current->id] = current->clock;
}

// A reader that is not ordered before now, or -1. Forgets all readers.
static int take_unordered_reader(Cell& cell) {
  int found = -1;
  if (cell.read[0] == kManyReads) {
    const std::vector<u32>& list = reader_lists[cell.read[1]];
    for (int t = 0; t < block.threads; ++t) {
      if (list[t] > current->row->clock[t] && t != current->id) found = t;
    }
  } else {
    for (Epoch e : cell.read) {
      if (e && !ordered(e)) found = thread_of(e);
    }
  }
  cell.read[0] = cell.read[1] = cell.read[2] = 0;
  return found;
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
  bool store;  // an ordinary one, which happens right after the check
};

static u64 pc_of(const Cell& cell) { return cell.write_pc ? image_base() + cell.write_pc : 0; }

static inline void read_cell(Cell& cell, const Site& site) {
  if (!cell.write) {
    if (!site.space.initialized) add_finding(kUninitialized, &site.space, site.address, (int)site.size, -1, site.pc, 0);
  } else if (cell.write_block != block.number) {
    add_finding(kBetweenBlocks, &site.space, site.address, (int)site.size, -1, site.pc, pc_of(cell),
                (int)cell.write_block);
  } else if (!ordered(cell.write)) {
    add_finding(kReadAfterWrite, &site.space, site.address, (int)site.size, thread_of(cell.write), site.pc, pc_of(cell));
  }
  if ((cell.read_block & ~kOtherBlocks) != block.number) {
    cell.read[0] = cell.read[1] = cell.read[2] = 0;
    cell.read_block = block.number | (cell.read_block ? kOtherBlocks : 0);
  }
  Epoch e = now();
  if (cell.read[0] == kManyReads) return add_reader(cell);
  if (cell.read[0] == e || cell.read[1] == e || cell.read[2] == e) return;
  for (Epoch& slot : cell.read) {
    if (!slot || ordered(slot)) {
      slot = e;
      return;
    }
  }
  add_reader(cell);
}

static inline void write_cell(Cell& cell, const Site& site, bool atomic) {
  if (cell.write) {
    bool both_atomic = atomic && (cell.write & kAtomic);
    if (both_atomic) {
    } else if (cell.write_block != block.number) {
      int other = (int)cell.write_block;
      if (site.store) suspect_write(kBetweenBlocks, site.space, site.address, site.size, -1, site.pc, pc_of(cell), other);
      else add_finding(kBetweenBlocks, &site.space, site.address, (int)site.size, -1, site.pc, pc_of(cell), other);
    } else if (!ordered(cell.write)) {
      int other = thread_of(cell.write);
      if (site.store) suspect_write(kWriteAfterWrite, site.space, site.address, site.size, other, site.pc, pc_of(cell));
      else add_finding(kWriteAfterWrite, &site.space, site.address, (int)site.size, other, site.pc, pc_of(cell));
    }
  } else if (atomic && !site.space.initialized) {
    add_finding(kUninitialized, &site.space, site.address, (int)site.size, -1, site.pc, 0);
  }
  if (cell.read_block) {
    u32 reader = cell.read_block & ~kOtherBlocks;
    if (reader != block.number || (cell.read_block & kOtherBlocks)) {
      int other = reader == block.number ? 0 : (int)reader;
      add_finding(kBetweenBlocks, &site.space, site.address, (int)site.size, -1, site.pc, 0, other);
      cell.read[0] = cell.read[1] = cell.read[2] = 0;
    } else {
      int other = take_unordered_reader(cell);
      if (other >= 0) add_finding(kWriteAfterRead, &site.space, site.address, (int)site.size, other, site.pc, 0);
    }
    cell.read_block = 0;
  }
  cell.write = now() | (atomic ? kAtomic : 0);
  cell.write_block = block.number;
  cell.write_pc = (u32)((u64)site.pc - image_base());
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

void check_cells(Space& space, const u8* address, u32 size, bool write, bool atomic, const void* pc) {
  Site site{space, address, size, pc, write && !atomic && size <= 64 && pc != nullptr};
  u64 offset = (u64)(address - space.low);
  while (size) {
    Granule& g = space.granules[offset >> 4];
    u32 first = offset & 15, count = 16 - first < size ? 16 - first : size;
    if (g.in_flight & byte_mask(first, count)) {
      add_finding(write ? kWriteInFlight : kReadInFlight, &space, address, (int)count, g.issuer, pc, pc_of(g.whole));
    }
    u32 unit = (first | count | 16) & -(first | count | 16);  // the largest power of two that divides both
    if (unit < 16u >> g.level) refine(g, 4 - __builtin_ctz(unit));
    u32 log = 4 - g.level;
    Cell* cells = (g.parts ? g.parts : &g.whole) + (first >> log);
    for (u32 i = 0; i < count >> log; ++i) {
      if (write) write_cell(cells[i], site, atomic);
      else read_cell(cells[i], site);
    }
    offset += count;
    address += count;
    size -= count;
  }
}

// An asynchronous copy of 4, 8 or 16 aligned bytes: never more than one granule.
void mark_in_flight(Space& space, const u8* address, u32 size, const void* pc) {
  u64 offset = (u64)(address - space.low);
  Site site{space, address, size, pc, false};
  Granule& g = space.granules[offset >> 4];
  u32 first = offset & 15;
  if (g.in_flight & byte_mask(first, size)) {
    add_finding(kWriteInFlight, &space, address, (int)size, g.issuer, pc, pc_of(g.whole));
  }
  if (size < 16u >> g.level) refine(g, 4 - __builtin_ctz(size));
  u32 log = 4 - g.level;
  Cell* cells = (g.parts ? g.parts : &g.whole) + (first >> log);
  for (u32 i = 0; i < size >> log; ++i) write_cell(cells[i], site, false);
  g.whole.write_pc = (u32)((u64)pc - image_base());
  g.in_flight |= byte_mask(first, size);
  g.issuer = (uint16_t)current->id;
}

// The copy has landed: the write happens now, at the wait. (With the moment of the issue, a thread that signalled
// between issue and wait would seem to have published data that had not arrived.)
void land(Space& space, const u8* address, u32 size) {
  u64 offset = (u64)(address - space.low);
  Granule& g = space.granules[offset >> 4];
  u32 first = offset & 15, log = 4 - g.level;
  g.in_flight &= (uint16_t)~byte_mask(first, size);
  Cell* cells = (g.parts ? g.parts : &g.whole) + (first >> log);
  for (u32 i = 0; i < size >> log; ++i) cells[i].write = now();
}

void forget_pending() { pending.active = false; }

void reset_shadow(Space& space, u32 bytes) {
  used_lists = 0;
  for (u32 i = 0; i < (bytes + 15) / 16; ++i) {
    free(space.granules[i].parts);
    space.granules[i] = Granule{};
  }
}

}  // namespace emu
