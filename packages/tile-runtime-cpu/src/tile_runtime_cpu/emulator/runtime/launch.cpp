// The launcher: blocks in seeded random order, each scheduled by a seed of its own, findings, faults, and the functions Python calls.
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "hopper.h"
#include "launch.h"
#include "state.h"

namespace emu {

Settings settings;
Counters counters;
Thread threads[kMaxResident];
Warp warps[kMaxWarps];
Block block;
Thread* current;
Space shared_spaces[kMaxBlocks];
std::vector<Space> spaces;
bool launched;

constexpr size_t kMaxFindings = 8;       // different places; more would not be read
constexpr u32 kMaxRepeats = 200;         // then the kernel is stopped
constexpr u64 kMaxShadowed = 256u << 20; // larger buffers get bounds checks only: a shadow has three times their size

static std::vector<Finding> findings;
static u32 repeats;
static std::vector<char> output;  // with its final zero
static u64 random_state;
static u64 image_low, image_high;

u32 random_number() {  // xorshift64*
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return (u32)(random_state * 0x2545f4914f6cdd1dull >> 32);
}

// For the launch (0), or for a block: no block's schedule depends on what others did.
static void seed_random(u64 block_number) {
  random_state = (settings.seed * 0x9e3779b97f4a7c15ull + 0x1234567) ^ block_number * 0xd1342543de82ef95ull;
  if (random_state == 0) random_state = 1;
}

u64 image_base() { return image_low; }
bool in_image(const void* p) { return (u64)p >= image_low && (u64)p < image_high; }

bool add_finding(Kind kind, const Space* space, const void* address, int size, int other, const void* pc, u64 other_pc,
                 int code, int window) {
  for (Finding& f : findings) {
    if (f.kind == kind && f.pc == (u64)pc) {
      ++f.repeats;
      if (++repeats > kMaxRepeats) abandon();
      return false;
    }
  }
  Finding f = {};
  f.kind = kind;
  f.space = space ? space->index : -2;
  f.offset = space && address ? (const u8*)address - space->low : (int64_t)address;
  f.size = size;
  int per_block = block.size ? block.slots / block.size : 1, rank = current ? current->rank : 0;
  f.thread = current ? current->id - rank * per_block : -1;
  f.other = other < 0 ? other : other % per_block;
  f.other_rank = other < 0 || other / per_block == rank ? -1 : other / per_block;
  f.code = code;
  f.window = window;
  f.repeats = 1;
  if (current) {
    tl_emu_index b = current->self->block_index;
    f.block[0] = b.x, f.block[1] = b.y, f.block[2] = b.z;
  }
  f.pc = (u64)pc;
  f.other_pc = other_pc;
  findings.push_back(f);
  if (findings.size() >= kMaxFindings) abandon();
  return true;
}

void fail(Kind kind, const void* pc, int other, int code) {
  add_finding(kind, nullptr, nullptr, 0, other, pc, 0, code);
  abandon();
}

void check_shared_range(const void* address, u32 size, const void* pc) {
  const u8* p = (const u8*)address;
  Space& shared_space = own_shared();
  if (p < shared_space.low || p + size > shared_space.high) {
    add_finding(kOutOfBounds, &shared_space, address, (int)size, -1, pc, 0, kWrite);
    abandon();
  }
  if ((u64)p % size) {
    add_finding(kMisaligned, &shared_space, address, (int)size, -1, pc, 0, kWrite);
    abandon();
  }
}

void check_shared(const void* address, u32 size, Access access, const void* pc) {
  check_shared_range(address, size, pc);
  check_access(address, size, access, pc, true);
}

// ---- faults ------------------------------------------------------------------------------------------------------------
static u8 fault_stack[64 * 1024] __attribute__((aligned(16)));
static int fault_signal;
static u64 fault_pc;

static void after_fault() { fail(kFault, (void*)fault_pc, -1, fault_signal); }

// Leaves the handler onto a stack of our own, from where the kernel is abandoned like any other.
static void on_fault(int signal, siginfo_t*, void* context) {
  ucontext_t* c = (ucontext_t*)context;
  if (!launched) {  // not ours: let it happen again without this handler
    ::signal(signal, SIG_DFL);
    return;
  }
  fault_signal = signal;
  fault_pc = (u64)c->uc_mcontext.gregs[REG_RIP];
  c->uc_mcontext.gregs[REG_RSP] = (greg_t)(fault_stack + sizeof fault_stack - 8);
  c->uc_mcontext.gregs[REG_RIP] = (greg_t)after_fault;
}

struct FaultGuard {
  static constexpr int signals[4] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
  struct sigaction before[4];
  stack_t stack_before;
  static u8 alternate[64 * 1024];
  FaultGuard() {
    stack_t stack = {};
    stack.ss_sp = alternate;
    stack.ss_size = sizeof alternate;
    sigaltstack(&stack, &stack_before);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    for (int i = 0; i < 4; ++i) sigaction(signals[i], &action, &before[i]);
  }
  ~FaultGuard() {
    for (int i = 0; i < 4; ++i) sigaction(signals[i], &before[i], nullptr);
    sigaltstack(&stack_before, nullptr);
  }
};
u8 FaultGuard::alternate[64 * 1024];

// ---- the launch --------------------------------------------------------------------------------------------------------
struct ImageQuery {
  u64 address;
};

static int visit_image(dl_phdr_info* info, size_t, void* data) {
  u64 address = ((ImageQuery*)data)->address, low = ~0ull, high = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    u64 start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    low = std::min(low, start);
    high = std::max(high, start + info->dlpi_phdr[i].p_memsz);
  }
  if (address < low || address >= high) return 0;
  image_low = info->dlpi_addr;
  image_high = high;
  return 1;
}

static void release_spaces() {
  for (Space& s : spaces) {
    if (!s.granules) continue;
    u64 count = ((u64)(s.high - s.low) + 15) / 16;
    for (u64 i = 0; i < count; ++i) {
      if (s.granules[i].parts) free(s.granules[i].parts);
    }
    munmap(s.granules, count * sizeof(Granule));
  }
  spaces.clear();
}

}  // namespace emu

using namespace emu;

extern "C" {

typedef void (*block_hook)(unsigned x, unsigned y, unsigned z, void* shared);

struct tl_emu_buffer {  // written by module.py
  void* low;
  int64_t bytes;
  int writable, initialized;
};

// 0: done, findings or not; 1: to be done again by one process (processes.cpp); below 0: it could not start.
int tl_emu_launch(void (*entry)(void**), void** arguments, const unsigned* grid, const unsigned* size, unsigned shared_bytes,
                  const Settings* chosen, const tl_emu_buffer* buffers, int buffer_count, block_hook hook,
                  stop_hook at_stop) {
  settings = *chosen;
  counters = Counters{};
  findings.clear();
  output.assign(1, 0);
  repeats = 0;
  forget_crew();
  seed_random(0);
  u64 count = (u64)size[0] * size[1] * size[2];
  if (count == 0 || count > kMaxThreads) return -1;
  if (shared_bytes > kSharedBytes) return -2;
  const unsigned* cluster = settings.cluster;
  u64 per_block = (count + settings.warp_size - 1) / settings.warp_size * settings.warp_size;
  u64 together = (u64)cluster[0] * cluster[1] * cluster[2];
  if (together > kMaxBlocks || together * per_block > kMaxResident) return -4;
  map_stacks((int)(together * per_block));
  if (!prepare_shared((int)together)) return -3;
  ImageQuery query{(u64)entry};
  dl_iterate_phdr(visit_image, &query);
  for (u64 rank = 0; rank < together; ++rank) shared_spaces[rank].high = shared_spaces[rank].low + shared_bytes;

  for (int i = 0; i < buffer_count; ++i) {
    Space s = {};
    s.low = (u8*)buffers[i].low;
    s.high = s.low + buffers[i].bytes;
    s.writable = buffers[i].writable;
    s.initialized = buffers[i].initialized;
    s.global = true;
    s.index = i;
    bool known = false;  // another name of the same memory
    for (const Space& other : spaces) known |= other.low == s.low && other.high == s.high;
    if (known) continue;
    if (settings.checks && buffers[i].bytes && (u64)buffers[i].bytes <= kMaxShadowed) {
      u64 bytes = ((u64)buffers[i].bytes + 15) / 16 * sizeof(Granule);
      void* shadow = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      s.granules = shadow == MAP_FAILED ? nullptr : (Granule*)shadow;
    }
    spaces.push_back(s);
  }
  forget_last_hit();
  forget_handed();
  block.threads = (int)count;
  block.size = (int)together;
  block.slots = (int)(together * per_block);
  block.warps = block.slots / settings.warp_size;
  block.shared_bytes = shared_bytes;

  const u64 clusters[3] = {grid[0] / cluster[0], grid[1] / cluster[1], grid[2] / cluster[2]};
  std::vector<u64> order(clusters[0] * clusters[1] * clusters[2]);
  for (u64 i = 0; i < order.size(); ++i) order[i] = i;
  if (settings.seed) {
    for (u64 i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_number() % i]);
  }
  set_stop_hook(at_stop);
  FaultGuard guard;
  start_clock();
  auto run_one = [&](u64 number) {
    seed_random(number + 1);
    look_at_clock_later();
    const u64 first[3] = {number % clusters[0] * cluster[0], number / clusters[0] % clusters[1] * cluster[1],
                          number / clusters[0] / clusters[1] * cluster[2]};
    block.number = (u32)(first[0] + grid[0] * (first[1] + grid[1] * first[2])) + 1;
    forget_pending();
    reset_barriers();
    reset_clocks();
    reset_asynchronous_work();
    reset_stops();
    prepare_threads(entry, arguments);
    std::vector<tl_emu_self_t> blocks(together);
    for (u32 rank = 0; rank < together; ++rank) {
      tl_emu_self_t& common = blocks[rank];
      common.block_index = {(unsigned)first[0] + rank % cluster[0], (unsigned)first[1] + rank / cluster[0] % cluster[1],
                            (unsigned)first[2] + rank / cluster[0] / cluster[1]};
      common.block_size = {size[0], size[1], size[2]};
      common.grid_size = {grid[0], grid[1], grid[2]};
      common.shared = shared_spaces[rank].low;
      common.cluster_rank = rank;
      common.cluster_size = (unsigned)together;
      memset(common.shared, 0xff, shared_bytes);
      if (settings.checks) reset_shadow(shared_spaces[rank], shared_bytes);
      start_block_threads((int)rank, common);
    }
    launched = true;
    bool finished = run_block();
    launched = false;
    finish_traffic();
    if (!finished || !findings.empty()) return false;
    counters.blocks += together;
    for (const tl_emu_self_t& b : blocks) {
      if (hook) hook(b.block_index.x, b.block_index.y, b.block_index.z, b.shared);
    }
    return true;
  };
  double began = processor_seconds();
  u64 done = 0;
  bool good = true;
  while (done < order.size() && run_one(order[done])) {
    if (++done == order.size() || hook || at_stop || !worth_a_crew(done, order.size(), processor_seconds() - began)) continue;
    good = run_crew(order, done, run_one);
    break;
  }
  release_spaces();
  return good ? 0 : 1;
}

int tl_emu_findings(Finding* out, int room) {
  int n = std::min(room, (int)findings.size());
  for (int i = 0; i < n; ++i) out[i] = findings[i];
  return n;
}

void tl_emu_counters(Counters* out) { *out = counters; }
u64 tl_emu_image_base() { return image_low; }
int tl_emu_processes() { return crew_size; }  // that ran blocks of the last launch
const char* tl_emu_output() { return output.empty() ? "" : output.data(); }

// Where each thread of the last block stands: operation, barrier, place.
int tl_emu_standing(int* operations, int* barrier_numbers, u64* places) {
  for (int t = 0; t < block.slots; ++t) {
    operations[t] = threads[t].at;
    barrier_numbers[t] = threads[t].barrier;
    places[t] = (u64)threads[t].pc;
  }
  return block.slots;
}

void tl_emu_print(const char* text) {
  order_matters();
  if (output.size() < (1u << 20)) output.insert(output.end() - 1, text, text + strlen(text));
}

void tl_emu_assert_failed(int code) { fail(kAssert, TL_EMU_PC, -1, code); }
}
