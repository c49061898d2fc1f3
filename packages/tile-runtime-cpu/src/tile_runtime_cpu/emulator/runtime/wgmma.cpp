// wgmma.mma_async (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": register fragments, "Shared Memory Matrix
// Layout", "Matrix Descriptor Format").
//
// The 128 threads of a warpgroup meet at each operation. The product is computed at the issue ("early") or at the wait that
// covers it ("late"), into memory of its own: between the two the accumulator's registers hold NaN, and registers and shared
// memory that a wgmma uses are watched. Sums are float in the order of k; the chip's order and precision are its own.
#include <immintrin.h>

#include <deque>
#include <memory>

#include "hopper.h"
#include "launch.h"
#include "state.h"

namespace emu {

constexpr int kGroupThreads = 128, kRows = 64, kMaxColumnsOfD = 256, kMaxDepth = 32;

struct WgmmaOperands {  // of one thread
  void* d;
  const void* a;  // registers, or null
  u64 a_descriptor, b_descriptor;
  int n, a_type, b_type, f16, a_major, b_major, scale_d;
};

struct Accumulator {
  u8* registers[kGroupThreads];
  int n, f16, integer, uses;
  u32 value[kRows][kMaxColumnsOfD];  // floats or integers
};

struct Wgmma {
  WgmmaOperands operands;
  Accumulator* d;
  u32 a_registers[kGroupThreads][4];
  std::vector<u8*> a, b;  // chunks of 16 bytes: (row, k) or (k, row), as they are stored
  const u8* a_low[kGroupThreads];
  int views;  // how often their bytes were marked as being read
};

typedef std::vector<std::unique_ptr<Wgmma>> WgmmaGroup;

struct Warpgroup {
  int arrived, agent;
  Operation at;
  Thread* members;
  void* operands[kGroupThreads];
  u32 committed, retired;  // groups
  WgmmaGroup open;
  std::deque<WgmmaGroup> groups;
  std::vector<std::unique_ptr<Accumulator>> accumulators;
  int registers, wanted;  // of each thread; 0: as at entry
  std::vector<Thread*> waiting;  // for registers
};

static Warpgroup warpgroups[kMaxWarps];  // by their first warp
static int registers_free[kMaxBlocks];  // given up and not taken

static Warpgroup& own_warpgroup(const void* pc) {
  int per_block = block.slots / block.size, in_block = current->id - current->rank * per_block;
  int first = current->rank * per_block + in_block / kGroupThreads * kGroupThreads;
  if (in_block / kGroupThreads * kGroupThreads + kGroupThreads > block.threads) fail(kBadDescriptor, pc, -1, 0);
  Warpgroup& g = warpgroups[first / 32];
  g.members = &threads[first];
  return g;
}

void reset_warpgroups() {
  for (Warpgroup& g : warpgroups) {
    g.arrived = 0;
    g.agent = -1;
    g.committed = g.retired = 0;
    g.open.clear();
    g.groups.clear();
    g.accumulators.clear();
    g.registers = g.wanted = 0;
    g.waiting.clear();
  }
  for (int& count : registers_free) count = 0;
}

// True for the last thread of the warpgroup; the others wait.
static bool meet_warpgroup(Warpgroup& g, Operation operation, void* operands, const void* pc) {
  settle_same_value();
  Thread* self = current;
  self->pc = pc;
  if (g.arrived && g.at != operation) {
    for (int i = 0; i < kGroupThreads; ++i) {
      if (g.members[i].at != g.at) continue;
      self->at = operation;
      add_finding(kDiverged, nullptr, nullptr, 0, g.members[i].id, pc, (u64)g.members[i].pc, g.at);
      abandon();
    }
  }
  g.at = operation;
  g.operands[self - g.members] = operands;
  if (++g.arrived < kGroupThreads) {
    for (int i = 0; i < kGroupThreads; ++i) {
      if (g.members[i].at == kDone) fail(kExited, pc, g.members[i].id, operation);
    }
    self->at = operation;
    wait_here();
    return false;
  }
  g.arrived = 0;
  return true;
}

// The last thread does the work of all, then lets the others go on.
template <class Work>
static void release_warpgroup(Warpgroup& g, Work work) {
  work();
  for (int i = 0; i < kGroupThreads; ++i) {
    if (&g.members[i] == current) continue;
    g.members[i].at = kRunning;
    make_runnable(&g.members[i]);
  }
}

// ---- operands in registers -----------------------------------------------------------------------------------------------

void check_registers(const void* address, u32 size, const void* pc) {
  for (RegisterRange& r : own_async().registers) {
    if ((const u8*)address >= r.high || (const u8*)address + size <= r.low) continue;
    if (r.uses) fail(kRegisterInFlight, pc);
    r.touched = true;
  }
}

static void use_registers(Thread& thread, const u8* low, u32 bytes, bool chained, const void* pc) {
  AsyncThread& state = async_threads[thread.id];
  bool known = false;
  for (size_t i = 0; i < state.registers.size();) {
    RegisterRange& r = state.registers[i];
    bool same = r.low == low && r.high == low + bytes;
    if (low < r.high && low + bytes > r.low) {
      if (r.uses && !(same && chained)) fail(kRegisterInFlight, pc);
      if (!same) {  // what lay there once has gone
        state.registers.erase(state.registers.begin() + (long)i);
        continue;
      }
      if (!r.uses && r.touched) fail(kWgmmaFence, pc);
      ++r.uses;
      known = true;
    }
    ++i;
  }
  if (known) return;
  if (!state.fenced) fail(kWgmmaFence, pc);
  state.registers.push_back({low, low + bytes, 1, false});
}

static void free_registers(Thread& thread, const u8* low) {
  for (RegisterRange& r : async_threads[thread.id].registers) {
    if (r.low == low) --r.uses;
  }
}

// Visits each element of d: lane l of warp w holds, as element 4 j + 2 h + i, row 16 w + l / 4 + 8 h, column 8 j + 2 (l % 4) + i.
template <class Visit>
static void for_each_of_d(int n, Visit visit) {
  for (int t = 0; t < kGroupThreads; ++t) {
    int row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
    for (int e = 0; e < n / 2; ++e) visit(t, e, row + 8 * (e / 2 % 2), column + e / 4 * 8 + e % 2);
  }
}

static void gather(Accumulator& d) {
  for_each_of_d(d.n, [&](int t, int e, int row, int column) {
    u32& value = d.value[row][column];
    if (d.f16) {
      float f = _cvtsh_ss(((const uint16_t*)d.registers[t])[e]);
      memcpy(&value, &f, 4);
    } else {
      memcpy(&value, d.registers[t] + 4 * e, 4);
    }
  });
}

static void scatter(const Accumulator& d) {
  for_each_of_d(d.n, [&](int t, int e, int row, int column) {
    if (d.f16) {
      float f;
      memcpy(&f, &d.value[row][column], 4);
      ((uint16_t*)d.registers[t])[e] = _cvtss_sh(f, 0);
    } else {
      memcpy(d.registers[t] + 4 * e, &d.value[row][column], 4);
    }
  });
}

// ---- operands in shared memory -------------------------------------------------------------------------------------------

// The 16-byte chunks of a matrix of `extent` rows (or columns) and 32 bytes of k; MN-major: of 16 k and `extent` elements.
static std::vector<u8*> chunks_of(u64 descriptor, int extent, bool mn_major, const void* pc) {
  constexpr int spans[4] = {16, 128, 64, 32};
  int mode = (int)(descriptor >> 62), span = spans[mode], per_span = span / 16;
  u32 start = (u32)(descriptor & 0x3fff) << 4, leading = (u32)(descriptor >> 16 & 0x3fff) << 4,
      stride = (u32)(descriptor >> 32 & 0x3fff) << 4;
  if (descriptor >> 49 & 7) fail(kBadDescriptor, pc, -1, 1);
  int window = (int)(descriptor >> 52 & kMaxWindows);  // bits that no chip uses
  u32 mask = mode == 1 ? 0x70 : mode == 2 ? 0x30 : mode == 3 ? 0x10 : 0;
  std::vector<u8*> chunks;
  Space& space = own_shared();
  auto add = [&](u32 offset) {
    u32 address = (start + offset) & 0x3ffff;
    address ^= address >> 3 & mask;
    u8* p = space.low + address;
    bool outside = settings.checks && !inside_window(window, address, 16);
    if (outside || p + 16 > space.high) {
      add_finding(kOutOfBounds, &space, p, 16, -1, pc, 0, kRead, outside ? window : 0);
      abandon();
    }
    chunks.push_back(p);
  };
  u32 row = (u32)span;
  if (!mn_major) {
    for (u32 r = 0; r < (u32)extent; ++r) {
      for (u32 c = 0; c < 2; ++c) add(r % 8 * row + r / 8 * stride + c * (mode ? 16 : leading));
    }
  } else {
    u32 along_k = mode ? stride : leading, along_mn = mode ? leading : stride;
    for (u32 k = 0; k < 16; ++k) {
      for (u32 j = 0; j < (u32)extent / 8; ++j) {
        add(k % 8 * row + k / 8 * along_k + j % (u32)per_span * 16 + j / (u32)per_span * along_mn);
      }
    }
  }
  return chunks;
}

static void read_chunks(Warpgroup& g, Wgmma& w, const void* pc) {
  Epoch epoch = epoch_of(g.agent, g.committed + 1);
  const Row* last = nullptr;
  for (int i = 0; i < kGroupThreads; ++i) {  // all of them must have seen what was written
    if (g.members[i].row == last) continue;
    last = g.members[i].row;
    Actor actor{last, -1, epoch};
    for (u8* p : w.a) begin_read(own_shared(), p, 16, actor, pc);
    for (u8* p : w.b) begin_read(own_shared(), p, 16, actor, pc);
    ++w.views;
  }
}

// ---- arithmetic ------------------------------------------------------------------------------------------------------------

static int element_bytes(int type) { return type == TL_F16 || type == TL_BF16 ? 2 : type == TL_TF32 ? 4 : 1; }

// Element i of 16 bytes as a float, or for integers as an int.
static u32 element_of(const u8* chunk, int i, int type) {
  float f;
  u32 result;
  switch (type) {
    case TL_F16: f = _cvtsh_ss(((const uint16_t*)chunk)[i]); break;
    case TL_BF16: return (u32)((const uint16_t*)chunk)[i] << 16;
    case TL_TF32: return ((const u32*)chunk)[i] & ~0x1fffu;  // the lower 13 bits are not read
    case TL_E4M3: f = float8.e4m3[chunk[i]]; break;
    case TL_E5M2: f = float8.e5m2[chunk[i]]; break;
    case TL_S8: return (u32)(int)(int8_t)chunk[i];
    default: return chunk[i];
  }
  memcpy(&result, &f, 4);
  return result;
}

template <bool integer>
static void multiply_rows(u32 (*d)[kMaxColumnsOfD], const u32 (*a)[kMaxDepth], const u32 (*b)[kMaxColumnsOfD], int n, int depth) {
  for (int row = 0; row < kRows; ++row) {
    for (int first = 0; first < n; first += 8) {
      u32* to = &d[row][first];
      if (integer) {
        __m256i sum = _mm256_loadu_si256((const __m256i*)to);
        for (int k = 0; k < depth; ++k) {
          __m256i x = _mm256_set1_epi32((int)a[row][k]), y = _mm256_loadu_si256((const __m256i*)&b[k][first]);
          sum = _mm256_add_epi32(sum, _mm256_mullo_epi32(x, y));
        }
        _mm256_storeu_si256((__m256i*)to, sum);
      } else {
        __m256 sum = _mm256_loadu_ps((const float*)to);
        for (int k = 0; k < depth; ++k) {
          __m256 x = _mm256_broadcast_ss((const float*)&a[row][k]), y = _mm256_loadu_ps((const float*)&b[k][first]);
          sum = _mm256_fmadd_ps(x, y, sum);
        }
        _mm256_storeu_ps((float*)to, sum);
      }
    }
  }
}

static void compute(Wgmma& w) {
  const WgmmaOperands& o = w.operands;
  static u32 a[kRows][kMaxDepth], b[kMaxDepth][kMaxColumnsOfD];
  int per = 16 / element_bytes(o.a_type), depth = 2 * per;
  if (o.a) {  // register j of lane l, element i: row 16 w + l / 4 + 8 (j % 2), column depth / 2 * (j / 2) + per / 4 * (l % 4) + i
    for (int t = 0; t < kGroupThreads; ++t) {
      for (int j = 0; j < 4; ++j) {
        u8 chunk[16] = {};
        memcpy(chunk, &w.a_registers[t][j], 4);
        for (int i = 0; i < per / 4; ++i) {
          a[t / 32 * 16 + t % 32 / 4 + 8 * (j % 2)][depth / 2 * (j / 2) + per / 4 * (t % 4) + i] = element_of(chunk, i, o.a_type);
        }
      }
    }
  } else if (!o.a_major) {
    for (int row = 0; row < kRows; ++row) {
      for (int k = 0; k < depth; ++k) a[row][k] = element_of(w.a[row * 2 + k / per], k % per, o.a_type);
    }
  } else {
    for (int k = 0; k < depth; ++k) {
      for (int row = 0; row < kRows; ++row) a[row][k] = element_of(w.a[k * (kRows / 8) + row / 8], row % 8, o.a_type);
    }
  }
  for (int k = 0; k < depth; ++k) {
    for (int n = 0; n < o.n; ++n) {
      const u8* chunk = o.b_major ? w.b[k * (o.n / 8) + n / 8] : w.b[n * 2 + k / per];
      b[k][n] = element_of(chunk, o.b_major ? n % 8 : k % per, o.b_type);
    }
  }
  Accumulator& d = *w.d;
  if (!o.scale_d) memset(d.value, 0, sizeof d.value);
  if (d.integer) multiply_rows<true>(d.value, a, b, o.n, depth);
  else multiply_rows<false>(d.value, a, b, o.n, depth);
  if (!d.f16) return;
  for (auto& row : d.value) {
    for (int n = 0; n < o.n; ++n) {
      float f;
      memcpy(&f, &row[n], 4);
      f = _cvtsh_ss(_cvtss_sh(f, 0));
      memcpy(&row[n], &f, 4);
    }
  }
}

// ---- life of a wgmma -------------------------------------------------------------------------------------------------------

static Accumulator* accumulator_of(Warpgroup& g, const WgmmaOperands& o, u32 bytes) {
  for (auto& d : g.accumulators) {
    if (d->uses && d->registers[0] == (u8*)((WgmmaOperands*)g.operands[0])->d && d->n == o.n && d->f16 == o.f16) {
      ++d->uses;
      return d.get();
    }
  }
  g.accumulators.push_back(std::make_unique<Accumulator>());
  Accumulator& d = *g.accumulators.back();
  for (int i = 0; i < kGroupThreads; ++i) d.registers[i] = (u8*)((WgmmaOperands*)g.operands[i])->d;
  d.n = o.n;
  d.f16 = o.f16;
  d.integer = o.a_type >= TL_S8;
  d.uses = 1;
  if (o.scale_d) gather(d);
  for (u8* registers : d.registers) memset(registers, 0xff, bytes);
  return &d;
}

static void issue(Warpgroup& g, const void* pc) {
  ++counters.wgmma;
  Thread* leader = current;
  const WgmmaOperands& o = *(WgmmaOperands*)g.operands[0];
  if (g.agent < 0) {
    g.agent = new_agent();
    set_issuer(g.agent, g.members[0].id);
  }
  u32 bytes = (u32)o.n * (o.f16 ? 1 : 2);
  bool chained = false;
  for (auto& d : g.accumulators) chained |= d->uses && d->registers[0] == (u8*)o.d && d->n == o.n;
  auto w = std::make_unique<Wgmma>();
  w->operands = o;
  w->views = 0;
  for (int i = 0; i < kGroupThreads; ++i) {
    const WgmmaOperands& own = *(WgmmaOperands*)g.operands[i];
    current = &g.members[i];
    if (own.a_descriptor != o.a_descriptor || own.b_descriptor != o.b_descriptor || own.scale_d != o.scale_d || own.n != o.n) {
      fail(kBadDescriptor, pc, g.members[0].id, 2);
    }
    if (settings.checks) use_registers(g.members[i], (u8*)own.d, bytes, chained, pc);
    w->a_low[i] = (const u8*)own.a;
    if (!own.a) continue;
    if (settings.checks) use_registers(g.members[i], (const u8*)own.a, 16, false, pc);
    memcpy(w->a_registers[i], own.a, 16);
  }
  current = leader;
  if (!o.a) w->a = chunks_of(o.a_descriptor, kRows, o.a_major, pc);
  w->b = chunks_of(o.b_descriptor, o.n, o.b_major, pc);
  if (settings.checks) read_chunks(g, *w, pc);
  w->d = accumulator_of(g, o, bytes);
  if (!settings.late) compute(*w);
  g.open.push_back(std::move(w));
}

static void retire(Warpgroup& g, Wgmma& w) {
  if (settings.late) compute(w);
  Actor actor{g.members[0].row, -1, epoch_of(g.agent, g.retired + 1)};
  for (int view = 0; view < w.views; ++view) {
    for (u8* p : w.a) end_read(own_shared(), p, 16, actor);
    for (u8* p : w.b) end_read(own_shared(), p, 16, actor);
  }
  if (settings.checks) {
    for (int i = 0; i < kGroupThreads; ++i) {
      free_registers(g.members[i], w.d->registers[i]);
      if (w.a_low[i]) free_registers(g.members[i], w.a_low[i]);
    }
  }
  if (--w.d->uses) return;
  scatter(*w.d);
  for (size_t i = 0; i < g.accumulators.size(); ++i) {
    if (g.accumulators[i].get() == w.d) {
      g.accumulators.erase(g.accumulators.begin() + (long)i);
      break;
    }
  }
}

static void retire_groups(Warpgroup& g, int pending) {
  if ((int)g.groups.size() <= pending) return;
  while ((int)g.groups.size() > pending) {
    for (auto& w : g.groups.front()) retire(g, *w);
    g.groups.pop_front();
    ++g.retired;
  }
  if (g.agent < 0) return;
  Row* learnt = new_row();
  learnt->references = 1;
  learnt->columns = g.agent + 1;
  memset(learnt->clock, 0, sizeof(u32) * (size_t)learnt->columns);
  learnt->clock[g.agent] = g.retired;
  for (int i = 0; i < kGroupThreads; ++i) {
    acquire(g.members[i], learnt);
    async_threads[g.members[i].id].fenced = false;
  }
  drop_row(learnt);
}

// ---- registers between warpgroups (PTX ISA, "setmaxnreg") -------------------------------------------------------------------

// What each thread has at first: the register file in equal parts, as launch bounds make it (ptxas may choose less).
static int registers_at_entry() {
  int count = 65536 / (block.slots / block.size) / 8 * 8;
  return count > 256 ? 256 : count;
}

static void grant_registers() {
  for (Warpgroup& g : warpgroups) {
    if (g.waiting.empty()) continue;
    int& available = registers_free[g.members[0].rank];
    if (g.wanted - g.registers > available) continue;
    available -= g.wanted - g.registers;
    g.registers = g.wanted;
    for (Thread* t : g.waiting) {
      t->at = kRunning;
      make_runnable(t);
    }
    g.waiting.clear();
  }
}

static void set_registers(Warpgroup& g, int count, bool increase, const void* pc) {
  if (!g.registers) g.registers = registers_at_entry();
  if (count < 24 || count > 256 || count % 8 || (!increase && count > g.registers)) {
    fail(kRegisterLimit, pc, -1, g.registers);
  }
  g.wanted = increase && count < g.registers ? g.registers : count;  // with few threads there are enough from the start
  for (int i = 0; i < kGroupThreads; ++i) {
    g.members[i].at = kAwaitRegisters;
    g.waiting.push_back(&g.members[i]);
  }
  if (!increase) registers_free[current->rank] += g.registers - count;
  if (!increase) g.registers = count;
  grant_registers();
}

}  // namespace emu

using namespace emu;

extern "C" {

void tl_emu_wgmma(void* d, const void* a, u64 a_descriptor, u64 b_descriptor, int n, int types, int majors, int scale_d) {
  const void* pc = TL_EMU_PC;
  WgmmaOperands own{d, a, a_descriptor, b_descriptor, n, types & 15, types >> 4 & 15, types >> 8, majors & 1, majors >> 1, scale_d};
  Warpgroup& g = own_warpgroup(pc);
  if (meet_warpgroup(g, kWgmma, &own, pc)) release_warpgroup(g, [&] { issue(g, pc); });
}

void tl_emu_wgmma_fence() {
  settle_same_value();
  own_async().fenced = true;
  for (RegisterRange& r : own_async().registers) r.touched = false;
}

void tl_emu_wgmma_commit() {
  const void* pc = TL_EMU_PC;
  Warpgroup& g = own_warpgroup(pc);
  if (!meet_warpgroup(g, kWgmmaCommit, nullptr, pc)) return;
  release_warpgroup(g, [&] {
    g.groups.push_back(std::move(g.open));
    g.open.clear();
    ++g.committed;
  });
}

void tl_emu_wgmma_wait(int pending) {
  const void* pc = TL_EMU_PC;
  Warpgroup& g = own_warpgroup(pc);
  if (meet_warpgroup(g, kWgmmaWait, nullptr, pc)) release_warpgroup(g, [&] { retire_groups(g, pending); });
}

void tl_emu_set_registers(int count, int increase) {
  const void* pc = TL_EMU_PC;
  Warpgroup& g = own_warpgroup(pc);
  if (!meet_warpgroup(g, kSetRegisters, nullptr, pc)) return;
  set_registers(g, count, increase, pc);
  wait_here();
}
}
