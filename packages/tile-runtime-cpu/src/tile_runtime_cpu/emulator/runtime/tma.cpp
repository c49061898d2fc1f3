// Bulk copies (PTX ISA, "Asynchronous copy: cp.async.bulk", "Tensors: Bulk asynchronous copies", "Swizzling modes").
//
// Data move at the issue ("early"), or ("late") when nothing else can run, in random order; stores and reductions at the
// latest at the wait for their reads. Until then, in either mode, what is read may not be written and what is written may
// not be touched.
#include <algorithm>

#include "hopper.h"
#include "launch.h"
#include "state.h"

namespace emu {

// As tensor_map.py packs it: what cuTensorMapEncodeTiled is told, in a form of our own.
struct TensorMap {
  u32 magic;
  u8 type, rank, swizzle, fill_nan;  // type: CUtensorMapDataType
  u8* address;
  u64 size[5], stride[4];  // elements; bytes from one to the next in dimensions 1 to 4
  uint16_t box[5];
  u8 step[5], element_bytes;
};
constexpr u32 kTensorMapMagic = 0x50414d54;

enum NumberType : int { kU8, kU16, kU32, kS32, kU64, kS64, kF16, kF32, kF64, kBF16, kF32Flushed, kTF32, kTF32Flushed };

enum TransferKind { kLoad, kStore, kReduce, kArrival };

struct Piece {  // bytes that stay together on both sides; of `bytes`, `count` from `first` on exist in global memory
  u8 *shared, *global;
  u32 first, count, bytes;
};

struct Transfer {
  TransferKind kind;
  int operation, type, issuer;
  u32 bytes;
  u64 fill;  // of what is out of bounds
  Mbarrier* barrier;
  const void* pc;
  bool performed, read;
  std::vector<Piece> pieces;
  std::vector<Copy> copies;
};

static std::vector<Transfer*> under_way;  // late mode: loads and arrivals

static Space& space_of(const u8* p) {
  Space* space = shared_at(p);
  if (space) return *space;
  return *global_space(p);
}

// ---- shapes ------------------------------------------------------------------------------------------------------------

static u8* swizzled(u8* p, int span) {
  u64 mask = span == 128 ? 0x70 : span == 64 ? 0x30 : span == 32 ? 0x10 : 0;
  return (u8*)((u64)p ^ ((u64)p >> 3 & mask));  // shared memory begins at a multiple of the pattern
}

static TensorMap read_map(const void* map, int rank, const void* pc) {
  TensorMap m;
  memcpy(&m, map, sizeof m);
  if (m.magic != kTensorMapMagic) fail(kBadTensorMap, pc, -1, 0);
  if (m.rank != rank) fail(kBadTensorMap, pc, -1, m.rank);
  return m;
}

// A box begins at a multiple of 16 bytes of its row, and one that is written begins inside the tensor: what the chip answers
// with an illegal instruction otherwise. (CUDA programming guide, "Negative indices and out of bounds"; the first rule is not
// in the manuals, see docs/internals/emulator.md.)
static void check_coordinates(const TensorMap& m, const int* at, bool writes, const void* pc) {
  int bad = (int64_t)at[0] * m.element_bytes % 16 ? 0 : -1;
  for (int d = 0; writes && bad < 0 && d < m.rank; ++d) bad = at[d] < 0 ? d : -1;
  if (bad < 0) return;
  add_finding(kBadCoordinates, nullptr, (const void*)(int64_t)at[bad], m.element_bytes, -1, pc, 0, bad);
  abandon();
}

static u32 box_bytes(const TensorMap& m) {
  u32 bytes = (u32)m.box[0] * m.element_bytes;
  for (int d = 1; d < m.rank; ++d) bytes *= (m.box[d] + m.step[d] - 1u) / m.step[d];
  return bytes;
}

// The rows of a box in the order of shared memory, each cut into 16 bytes if they are swizzled.
static std::vector<Piece> pieces_of(const TensorMap& m, const int* at, u8* shared) {
  std::vector<Piece> pieces;
  u32 row_bytes = (u32)m.box[0] * m.element_bytes;
  int64_t low = std::max<int64_t>(0, -(int64_t)at[0]), high = std::min<int64_t>(m.box[0], (int64_t)m.size[0] - at[0]);
  u32 counts[5] = {1, 1, 1, 1, 1}, index[5] = {};
  for (int d = 1; d < m.rank; ++d) counts[d] = (m.box[d] + m.step[d] - 1u) / m.step[d];
  u32 rows = counts[1] * counts[2] * counts[3] * counts[4];
  for (u32 row = 0; row < rows; ++row) {
    u8* global = m.address + (int64_t)at[0] * m.element_bytes;
    bool inside = low < high;
    for (int d = 1; d < m.rank; ++d) {
      int64_t coordinate = at[d] + (int64_t)index[d] * m.step[d];
      inside = inside && coordinate >= 0 && coordinate < (int64_t)m.size[d];
      global += coordinate * (int64_t)m.stride[d - 1];
    }
    u32 first = inside ? (u32)low * m.element_bytes : 0, end = inside ? (u32)high * m.element_bytes : 0;
    u32 piece = m.swizzle ? 16 : row_bytes;
    for (u32 b = 0; b < row_bytes; b += piece) {
      u32 from = std::min(std::max(first, b), b + piece), to = std::min(std::max(end, b), b + piece);
      pieces.push_back({swizzled(shared + row * row_bytes + b, m.swizzle), global + b, from - b, to > from ? to - from : 0, piece});
    }
    for (int d = 1; d < m.rank && ++index[d] == counts[d]; ++d) index[d] = 0;
  }
  return pieces;
}

// What fills elements out of bounds: 0, or a NaN of the element type, repeated.
static u64 fill_of(const TensorMap& m) {
  if (!m.fill_nan) return 0;
  return m.element_bytes == 2 ? 0x7fff7fff7fff7fffull : m.element_bytes == 4 ? 0x7fffffff7fffffffull : 0x7fffffffffffffffull;
}

static void check_aligned(const void* address, u32 multiple, const void* pc) {
  if ((u64)address % multiple == 0) return;
  Space* space = shared_at(address);
  add_finding(kMisaligned, space ? space : global_space((const u8*)address), address, (int)multiple, -1, pc, 0, kWrite);
  abandon();
}

static void check_shared_box(const u8* shared, u32 bytes, u32 alignment, const void* pc) {
  Space& space = own_shared();
  if (shared < space.low || shared + bytes > space.high) {
    add_finding(kOutOfBounds, &space, shared, (int)bytes, -1, pc, 0, kWrite);
    abandon();
  }
  check_aligned(shared, alignment, pc);
}

// A sector that a piece shares with the one before it counts once.
static void count_traffic(const std::vector<Piece>& pieces, bool write) {
  u64 last = 0;
  for (const Piece& p : pieces) {
    if (!p.count || shared_at(p.global)) continue;
    (write ? counters.global_written_bytes : counters.global_read_bytes) += p.count;
    const Space* space = global_space(p.global + p.first);
    const u64 offset = (u64)(p.global + p.first) - (space ? (u64)space->low : 0);  // buffers begin at a sector
    const u64 first = offset / 32 + 1, end = (offset + p.count - 1) / 32 + 1;      // 0: none
    if (settings.checks) counters.global_sectors += end - first + (first != last);
    last = end;
  }
}

// ---- arithmetic of reductions --------------------------------------------------------------------------------------------

template <class T>
static T combine(T a, T b, int operation) {
  switch (operation) {
    case 0: return (T)(a + b);
    case 1: return b < a ? b : a;
    case 2: return b > a ? b : a;
    default: return a;
  }
}

template <class T>
static T combine_bits(T a, T b, int operation) {
  return operation == 3 ? a & b : operation == 4 ? a | b : operation == 5 ? a ^ b : combine(a, b, operation);
}

template <class T, class Combine>
static void update(u8* to, const u8* from, u32 bytes, Combine combine_two) {
  for (u32 i = 0; i < bytes; i += sizeof(T)) {
    T a, b;
    memcpy(&a, to + i, sizeof(T));
    memcpy(&b, from + i, sizeof(T));
    a = combine_two(a, b);
    memcpy(to + i, &a, sizeof(T));
  }
}

static uint16_t bf16_bits(float x) {
  u32 u;
  memcpy(&u, &x, 4);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}
static float bf16_value(uint16_t x) {
  u32 u = (u32)x << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

static void reduce(u8* to, const u8* from, u32 bytes, int type, int operation) {
  auto bits = [=](auto a, auto b) { return combine_bits(a, b, operation); };
  auto numbers = [=](auto a, auto b) { return combine(a, b, operation); };
  switch (type) {
    case kU8: return update<u8>(to, from, bytes, bits);
    case kU16: return update<uint16_t>(to, from, bytes, bits);
    case kU32: return update<u32>(to, from, bytes, bits);
    case kS32: return update<int>(to, from, bytes, bits);
    case kU64: return update<u64>(to, from, bytes, bits);
    case kS64: return update<int64_t>(to, from, bytes, bits);
    case kF64: return update<double>(to, from, bytes, numbers);
    case kF16:
      return update<uint16_t>(to, from, bytes, [=](uint16_t a, uint16_t b) {
        return (uint16_t)_cvtss_sh(combine(_cvtsh_ss(a), _cvtsh_ss(b), operation), 0);
      });
    case kBF16:
      return update<uint16_t>(to, from, bytes, [=](uint16_t a, uint16_t b) {
        return bf16_bits(combine(bf16_value(a), bf16_value(b), operation));
      });
    default: return update<float>(to, from, bytes, numbers);
  }
}

// ---- life of a transfer --------------------------------------------------------------------------------------------------

// Elements as a map of type TFLOAT32 brings them: the nearest with 10 bits of mantissa, ties to even; NaN and infinities stay.
static void round_to_tf32(u8* p, u32 bytes) {
  for (u32 i = 0; i < bytes; i += 4) {
    u32 bits;
    memcpy(&bits, p + i, 4);
    if (~bits & 0x7f800000u) bits = bits + 0xfffu + (bits >> 13 & 1) & ~0x1fffu;
    memcpy(p + i, &bits, 4);
  }
}

static void perform_load(Transfer& t) {
  Epoch epoch = next_phase(*t.barrier);
  Actor agent{nullptr, -1, epoch};
  for (const Piece& p : t.pieces) {
    for (u32 i = 0; i < p.bytes && p.count < p.bytes; i += 8) memcpy(p.shared + i, &t.fill, std::min(8u, p.bytes - i));
    if (p.count) memcpy(p.shared + p.first, p.global + p.first, p.count);
    if (t.type == kTF32) round_to_tf32(p.shared + p.first, p.count);
    end_write(*shared_at(p.shared), p.shared, p.bytes, epoch);
    agent.row = threads[t.issuer].row;
    if (p.count) end_read(space_of(p.global + p.first), p.global + p.first, p.count, agent);
  }
  complete_bytes(*t.barrier, t.bytes, t.pc);
}

static void perform_store(Transfer& t) {
  for (const Piece& p : t.pieces) {
    if (!p.count) continue;
    if (t.kind == kReduce) reduce(p.global + p.first, p.shared + p.first, p.count, t.type, t.operation);
    else memcpy(p.global + p.first, p.shared + p.first, p.count);
  }
}

static void perform_arrival(Transfer& t) {
  for (const Copy& c : t.copies) {
    if (settings.late) move(c);
    end_write(*shared_at(c.destination), c.destination, (u32)c.bytes, next_phase(*t.barrier));
  }
  arrive(*t.barrier, 1, t.pc);
}

static void perform(Transfer* t) {
  if (t->performed) return;
  t->performed = true;
  if (t->kind == kLoad) perform_load(*t);
  else if (t->kind == kArrival) perform_arrival(*t);
  else perform_store(*t);
}

static void start(Transfer* t) {
  if (!settings.late) {
    perform(t);
    delete t;
  } else {
    under_way.push_back(t);
  }
}

bool complete_some_transfer() {
  if (under_way.empty()) return false;
  std::swap(under_way.back(), under_way[random_number() % (u32)under_way.size()]);
  Transfer* t = under_way.back();
  under_way.pop_back();
  perform(t);
  delete t;
  return true;
}

void drop_transfers() {
  for (Transfer* t : under_way) delete t;
  under_way.clear();
  for (AsyncThread& thread : async_threads) {
    for (Transfer* t : thread.open) delete t;
    for (auto& group : thread.groups) {
      for (Transfer* t : group) delete t;
    }
    thread.open.clear();
    thread.groups.clear();
  }
}

void check_nothing_under_way() {
  if (!under_way.empty()) fail(kExitInFlight, under_way[0]->pc, -1, 0);
}

// To the block of the current thread, or to those whose bits are set.
static void issue_load(std::vector<Piece> pieces, u32 bytes, int type, u64 fill, void* barrier, u32 blocks, const void* pc) {
  ++counters.tma_loads;
  counters.tma_bytes += bytes;
  count_traffic(pieces, false);
  for (const Piece& p : pieces) {
    if (p.count) check_global_range(p.global + p.first, p.count, kRead, pc);
  }
  for (int rank = 0; rank < block.size; ++rank) {
    if (!(blocks >> rank & 1)) continue;
    Mbarrier* b = rank == current->rank ? find_mbarrier(barrier, pc) : remote_mbarrier(barrier, rank, pc);
    check_init_fence(*b, pc);
    set_issuer(b->agent, current->id);
    Actor actor{current->row, current->id, next_phase(*b)};
    Transfer* t = new Transfer{kLoad, 0, type, current->id, bytes, fill, b, pc, false, false, pieces, {}};
    int64_t shift = shared_spaces[rank].low - own_shared().low;
    for (Piece& p : t->pieces) {
      p.shared += shift;
      begin_write(shared_spaces[rank], p.shared, p.bytes, actor, pc);
      if (settings.late) memset(p.shared, 0xff, p.bytes);
      if (p.count) begin_read(space_of(p.global + p.first), p.global + p.first, p.count, actor, pc);
    }
    start(t);
  }
}

static void issue_store(TransferKind kind, std::vector<Piece> pieces, u32 bytes, int type, int operation, const void* pc) {
  ++counters.tma_stores;
  counters.tma_bytes += bytes;
  Actor actor = this_thread();
  count_traffic(pieces, true);
  for (const Piece& p : pieces) {
    if (!p.count) continue;
    check_global_range(p.global + p.first, p.count, kWrite, pc);
    begin_read(own_shared(), p.shared + p.first, p.count, actor, pc);
    begin_write(space_of(p.global + p.first), p.global + p.first, p.count, actor, pc, kind == kReduce);
  }
  Transfer* t = new Transfer{kind, operation, type, current->id, bytes, 0, nullptr, pc, false, false, std::move(pieces), {}};
  if (!settings.late) perform(t);
  own_async().open.push_back(t);
}

static void finish_reading(Transfer* t) {
  perform(t);
  if (t->read) return;
  t->read = true;
  Actor actor = this_thread();
  for (const Piece& p : t->pieces) {
    if (p.count) end_read(own_shared(), p.shared + p.first, p.count, actor);
  }
}

static void finish_writing(Transfer* t) {
  finish_reading(t);
  Epoch epoch = this_thread().epoch;
  for (const Piece& p : t->pieces) {
    if (p.count) end_write(space_of(p.global + p.first), p.global + p.first, p.count, epoch);
  }
  delete t;
}

static void in_random_order(std::vector<Transfer*>& group) {
  for (size_t n = group.size(); n > 1 && settings.late; --n) std::swap(group[n - 1], group[random_number() % n]);
}

void finish_stores() {
  AsyncThread& self = own_async();
  self.groups.push_back(std::move(self.open));
  self.open.clear();
  for (auto& group : self.groups) {
    for (Transfer* t : group) {
      if (!t->read) add_finding(kExitInFlight, nullptr, nullptr, 0, -1, t->pc, 0, 1);
      finish_writing(t);
    }
  }
  self.groups.clear();
}

void wait_for_copies(Mbarrier& b, const void* pc) {
  Transfer* t = new Transfer{kArrival, 0, 0, current->id, 0, 0, &b, pc, false, false, {}, {}};
  set_issuer(b.agent, current->id);
  current->groups.push_back(std::move(current->open));
  current->open.clear();
  for (auto& group : current->groups) t->copies.insert(t->copies.end(), group.begin(), group.end());
  current->groups.clear();
  start(t);
}

}  // namespace emu

using namespace emu;

extern "C" {

void tl_emu_tma_load(void* shared, const void* map, void* barrier, const int* at, int rank, unsigned blocks) {
  const void* pc = TL_EMU_PC;
  settle_same_value();
  current->pc = pc;
  TensorMap m = read_map(map, rank, pc);
  shared = through_window(shared, box_bytes(m), kWrite, pc);
  barrier = through_window(barrier, 8, kWrite, pc);
  check_shared_box((u8*)shared, box_bytes(m), 128, pc);
  check_coordinates(m, at, false, pc);
  issue_load(pieces_of(m, at, (u8*)shared), box_bytes(m), m.type, fill_of(m), barrier, blocks ? blocks : 1u << current->rank, pc);
}

void tl_emu_tma_store(const void* map, const void* shared, const int* at, int rank, int operation) {  // -1: stores
  const void* pc = TL_EMU_PC;
  settle_same_value();
  current->pc = pc;
  TensorMap m = read_map(map, rank, pc);
  shared = through_window(shared, box_bytes(m), kRead, pc);
  check_shared_box((const u8*)shared, box_bytes(m), 128, pc);
  check_coordinates(m, at, true, pc);
  issue_store(operation < 0 ? kStore : kReduce, pieces_of(m, at, (u8*)shared), box_bytes(m), m.type, operation, pc);
}

void tl_emu_tma_prefetch(const void* map, int rank) { read_map(map, rank, TL_EMU_PC); }

static void check_row(const void* shared, const void* global, unsigned bytes, const void* pc) {
  settle_same_value();
  current->pc = pc;
  check_shared_box((const u8*)shared, bytes, 16, pc);
  check_aligned(global, 16, pc);
  if (bytes % 16) {
    add_finding(kMisaligned, &own_shared(), (const u8*)shared + bytes, 16, -1, pc, 0, kWrite);
    abandon();
  }
}

void tl_emu_bulk_load(void* shared, const void* global, unsigned bytes, void* barrier, unsigned blocks) {
  const void* pc = TL_EMU_PC;
  shared = through_window(shared, bytes, kWrite, pc);
  barrier = through_window(barrier, 8, kWrite, pc);
  check_row(shared, global, bytes, pc);
  issue_load({{(u8*)shared, (u8*)global, 0, bytes, bytes}}, bytes, kU8, 0, barrier, blocks ? blocks : 1u << current->rank, pc);
}

void tl_emu_bulk_copy_cluster(void* to, const void* from, unsigned bytes, void* barrier, unsigned rank) {
  const void* pc = TL_EMU_PC;
  to = through_window(to, bytes, kWrite, pc);
  from = through_window(from, bytes, kRead, pc);
  barrier = through_window(barrier, 8, kWrite, pc);
  check_row(to, from, bytes, pc);
  check_shared_box((const u8*)from, bytes, 16, pc);
  if (rank >= (unsigned)block.size) fail(kBadDescriptor, pc, -1, 3);
  issue_load({{(u8*)to, (u8*)from, 0, bytes, bytes}}, bytes, kU8, 0, barrier, 1u << rank, pc);
}

void tl_emu_bulk_store(void* global, const void* shared, unsigned bytes, int type, int operation) {
  const void* pc = TL_EMU_PC;
  shared = through_window(shared, bytes, kRead, pc);
  check_row(shared, global, bytes, pc);
  issue_store(operation < 0 ? kStore : kReduce, {{(u8*)shared, (u8*)global, 0, bytes, bytes}}, bytes, type, operation, pc);
}

void tl_emu_bulk_prefetch(const void* global, unsigned bytes) {
  const void* pc = TL_EMU_PC;
  current->pc = pc;
  check_aligned(global, 16, pc);
  check_global_range((const u8*)global, bytes, kRead, pc);
}

void tl_emu_bulk_commit() {
  own_async().groups.push_back(std::move(own_async().open));
  own_async().open.clear();
}

void tl_emu_bulk_wait(int pending, int reads_only) {
  settle_same_value();
  auto& groups = own_async().groups;
  int finished = (int)groups.size() - pending;
  for (int i = 0; i < finished; ++i) {
    in_random_order(groups[i]);
    for (Transfer* t : groups[i]) {
      if (reads_only) finish_reading(t);
      else finish_writing(t);
    }
  }
  if (!reads_only && finished > 0) groups.erase(groups.begin(), groups.begin() + finished);
}
}
