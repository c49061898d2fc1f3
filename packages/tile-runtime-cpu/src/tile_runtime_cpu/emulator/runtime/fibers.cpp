// Fibers: each thread of the block has a stack; switching is a function call that saves six registers.
//
// Order: a warp runs until its lanes wait for others, then a random runnable warp follows; from time to time a random
// warp takes over earlier. Detection does not need particular schedules (it follows happens-before), results may.
#include <sys/mman.h>

#include "hopper.h"
#include "state.h"

extern "C" void tl_emu_switch(void** save, void* to);
asm(R"(
.text
.globl tl_emu_switch
.hidden tl_emu_switch
.type tl_emu_switch,@function
tl_emu_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp,(%rdi)
  mov %rsi,%rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size tl_emu_switch,.-tl_emu_switch
)");

namespace emu {

constexpr size_t kStackBytes = 128 * 1024;
// 0xff in fresh stacks makes uninitialised floats NaN, as far down as most kernels reach.
constexpr size_t kPoisonBytes = 6 * 1024;

static u8 *stacks, *stacks_end;
static void* launcher_stack;
static void (*kernel_entry)(void**);
static void** kernel_arguments;
static int running_warp;
static bool abandoned;
static void (*errand)();
static void* errand_from;

bool on_stacks(const void* p) { return (const u8*)p >= stacks && (const u8*)p < stacks_end; }

void map_stacks(int count) {
  static int mapped;
  if (!stacks) {
    size_t bytes = kStackBytes * kMaxResident;
    void* area = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) return;
    stacks = (u8*)area;
    stacks_end = stacks + bytes;
  }
  // The lowest page of each stack: an overflow is a fault of its thread, not damage to its neighbour.
  for (; mapped < count; ++mapped) mprotect(stacks + mapped * kStackBytes, 4096, PROT_NONE);
}

void make_lanes_runnable(int warp, u64 lanes) {
  if (!lanes) return;
  warps[warp].runnable |= lanes;
  block.runnable_warps[warp / 64] |= 1ull << warp % 64;
}

void make_runnable(Thread* thread) { make_lanes_runnable(thread->warp, 1ull << thread->lane); }

static int random_warp() {
  u64 count = 0;
  for (u64 word : block.runnable_warps) count += (u64)__builtin_popcountll(word);
  u32 skip = random_number() % (u32)count;
  for (int i = 0;; ++i) {
    u64 candidates = block.runnable_warps[i];
    u32 here = (u32)__builtin_popcountll(candidates);
    if (skip >= here) {
      skip -= here;
      continue;
    }
    for (; skip; --skip) candidates &= candidates - 1;
    return i * 64 + __builtin_ctzll(candidates);
  }
}

// The next thread, no longer marked runnable; null if there is none.
static Thread* next_thread() {
  bool none = true;
  for (u64 word : block.runnable_warps) none = none && !word;
  if (none) return nullptr;
  Warp* warp = &warps[running_warp];
  if (!warp->runnable || (random_number() & 255) == 0) {
    running_warp = random_warp();
    warp = &warps[running_warp];
  }
  int lane = __builtin_ctzll(warp->runnable);
  warp->runnable &= warp->runnable - 1;
  if (!warp->runnable) block.runnable_warps[running_warp / 64] &= ~(1ull << running_warp % 64);
  return &threads[running_warp * settings.warp_size + lane];
}

static void switch_to(Thread* next) {
  Thread* self = current;
  if (next == self) return;
  ++counters.switches;
  current = next;
  tl_emu_switch(&self->stack_pointer, next->stack_pointer);
}

void wait_here() {
  Thread* next = next_thread();
  while (!next && let_time_pass()) next = next_thread();
  while (!next && release_stopped()) next = next_thread();
  if (!next) {  // tell it of one that waits: this one may just have finished
    for (int t = 0; t < block.slots && current->at == kDone; ++t) {
      if (threads[t].at != kDone) current = &threads[t];
    }
    fail(kDeadlock, current->pc);
  }
  switch_to(next);
}

void give_way() {
  make_runnable(current);
  running_warp = random_warp();
  switch_to(next_thread());
}

// Runs a function where there is room for more than a kernel needs, and comes back.
void on_launcher_stack(void (*wanted)()) {
  errand = wanted;
  tl_emu_switch(&errand_from, launcher_stack);
}

void abandon() {
  abandoned = true;
  void* unused;
  tl_emu_switch(&unused, launcher_stack);
  __builtin_unreachable();
}

static void thread_main() {
  kernel_entry(kernel_arguments);
  settle_same_value();
  Thread* self = current;
  self->at = kDone;
  if (warps[self->warp].arrived) {  // others of this warp wait for it in vain
    self->pc = nullptr;
    for (int lane = 0; lane < settings.warp_size; ++lane) {
      if (warps[self->warp].arrived >> lane & 1) {
        Thread* waiting = &threads[self->warp * settings.warp_size + lane];
        fail(kExited, waiting->pc, waiting->id, waiting->at);
      }
    }
  }
  end_asynchronous_work();
  void* unused;
  if (++block.finished == block.threads * block.size) {
    end_block();
    tl_emu_switch(&unused, launcher_stack);
  }
  wait_here();
  __builtin_unreachable();
}

void prepare_threads(void (*entry)(void**), void** arguments) {
  kernel_entry = entry;
  kernel_arguments = arguments;
  block.finished = 0;
  for (u64& word : block.runnable_warps) word = 0;
  for (int w = 0; w < block.warps; ++w) warps[w] = Warp{};
  for (int t = 0; t < block.slots; ++t) threads[t].at = kDone;  // also those that fill up a block's last warp
}

void start_block_threads(int rank, const tl_emu_self_t& common) {
  for (int i = 0; i < block.threads; ++i) {
    int t = rank * (block.slots / block.size) + i;
    Thread& thread = threads[t];
    // Tops are spread over the sets of the cache: stacks at a stride of a power of two would share one.
    u8* top = stacks + (size_t)(t + 1) * kStackBytes - 128 - (size_t)(t * 5 % 64) * 64;
    memset(top - kPoisonBytes, 0xff, kPoisonBytes);
    thread.self = (tl_emu_self_t*)top;
    *thread.self = common;
    unsigned x = common.block_size.x, y = common.block_size.y;
    thread.self->thread_index = {(unsigned)i % x, (unsigned)i / x % y, (unsigned)i / (x * y)};
    void** stack = (void**)top - 2;  // aligned to 16, as at a call
    stack[0] = (void*)thread_main;
    for (int i = 1; i <= 6; ++i) stack[-i] = nullptr;
    thread.stack_pointer = stack - 6;
    thread.id = t;
    thread.rank = rank;
    thread.warp = t / settings.warp_size;
    thread.lane = t % settings.warp_size;
    thread.at = kRunning;
    thread.pc = nullptr;
    reset_copies(thread);
    reset_loads(thread);
    warps[thread.warp].all |= 1ull << thread.lane;
    make_runnable(&thread);
  }
}

bool run_block() {
  abandoned = false;
  running_warp = random_warp();
  current = next_thread();
  errand = nullptr;
  tl_emu_switch(&launcher_stack, current->stack_pointer);
  while (errand) {
    errand();
    errand = nullptr;
    tl_emu_switch(&launcher_stack, errand_from);
  }
  return !abandoned;
}

}  // namespace emu

extern "C" const tl_emu_self_t* tl_emu_self() { return emu::current->self; }
