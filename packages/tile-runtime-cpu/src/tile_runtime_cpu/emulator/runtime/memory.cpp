// Where an address belongs, and the hooks through which every load and store of the kernel arrives.
//
// The kernel is compiled with -fsanitize=thread, which puts a call before each access; the names are those that gcc and
// clang emit. libtsan is never linked: these functions take its place.
#include <ctime>

#include "hopper.h"
#include "launch.h"
#include "state.h"

namespace emu {

static u32 until_clock;  // accesses until the next look at the clock
static double deadline;

static double read_clock(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds() { return read_clock(CLOCK_MONOTONIC); }
double processor_seconds() { return read_clock(CLOCK_THREAD_CPUTIME_ID); }

void look_at_clock_later() { until_clock = 1u << 20; }

void start_clock() {
  look_at_clock_later();
  deadline = seconds() + settings.timeout_seconds;
}

// A thread that spins on memory never waits for anyone: let others run, and end what does not end.
static void look_at_clock(const void* pc) {
  until_clock = 1u << 18;
  if (seconds() > deadline) fail(kTimeout, pc);
  give_way();
}

static Space* last_hit;
void forget_last_hit() { last_hit = nullptr; }

static Space* find_space(const u8* p) {
  for (Space& s : spaces) {
    if (p >= s.low && p < s.high) return &s;
  }
  return nullptr;
}

// The buffer that the address most likely missed.
static Space* nearest_space(const u8* p) {
  Space* best = nullptr;
  u64 best_distance = 1ull << 24;
  for (Space& s : spaces) {
    u64 distance = p < s.low ? (u64)(s.low - p) : p >= s.high ? (u64)(p - s.high) : 0;
    if (distance < best_distance) {
      best = &s;
      best_distance = distance;
    }
  }
  return best;
}

Space* check_access(const void* address, u32 size, Access access, const void* pc, bool aligned) {
  settle_same_value();
  ++counters.accesses;
  if (--until_clock == 0) look_at_clock(pc);
  const u8* p = (const u8*)address;
  bool write = access != kRead;
  Space* space;
  if ((space = shared_at(p)) && p < space->low + kSharedBytes) {
    if (space != &own_shared()) check_remote(*space, pc);
    (write ? counters.shared_written_bytes : counters.shared_read_bytes) += size;
  } else {
    space = last_hit && p >= last_hit->low && p < last_hit->high ? last_hit : find_space(p);
    if (!space) {
      if (in_image(p)) {  // constants and tables of the kernel's own
        if (write) order_matters();
        return nullptr;
      }
      add_finding(kOutOfBounds, nearest_space(p), address, (int)size, -1, pc, 0, access);
      abandon();
    }
    last_hit = space;
    (write ? counters.global_written_bytes : counters.global_read_bytes) += size;
  }
  if (!settings.checks) return space;
  if (p + size > space->high) {
    add_finding(kOutOfBounds, space, address, (int)size, -1, pc, 0, access);
    abandon();
  }
  if (aligned && (u64)p % size) {
    add_finding(kMisaligned, space, address, (int)size, -1, pc, 0, access);
    abandon();
  }
  if (write && !space->writable) {
    add_finding(kReadOnly, space, address, (int)size, -1, pc, 0, access);
    abandon();
  }
  if (space->granules) check_cells(*space, p, size, write, access == kAtomicUpdate, pc);
  return space;
}

// The buffer of an address, or the one that it has missed.
Space* global_space(const u8* p) {
  Space* space = last_hit && p >= last_hit->low && p < last_hit->high ? last_hit : find_space(p);
  if (space) last_hit = space;
  return space ? space : nearest_space(p);
}

void check_global_range(const u8* p, u32 size, Access access, const void* pc) {
  Space* space = shared_at(p);
  if (space) return;
  space = global_space(p);
  if (!space || p < space->low || p + size > space->high) {
    add_finding(kOutOfBounds, space, p, (int)size, -1, pc, 0, access);
    abandon();
  }
  if (access != kRead && !space->writable) {
    add_finding(kReadOnly, space, p, (int)size, -1, pc, 0, access);
    abandon();
  }
}

static inline void hook(const void* address, u32 size, Access access, const void* pc, bool aligned) {
  if (!launched) return;
  if (on_stacks(address)) return check_registers(address, size, pc);
  address = through_window(address, size, access, pc);
  Space* space = check_access(address, size, access, pc, aligned);
  if (space) record_traffic(*space, address, size, pc);
}

}  // namespace emu

extern "C" {
#define TL_EMU_HOOKS(n)                                                                                            \
  void __tsan_read##n(void* p) { emu::hook(p, n, emu::kRead, TL_EMU_PC, true); }                                   \
  void __tsan_write##n(void* p) { emu::hook(p, n, emu::kWrite, TL_EMU_PC, true); }                                 \
  void __tsan_unaligned_read##n(void* p) { emu::hook(p, n, emu::kRead, TL_EMU_PC, false); }                        \
  void __tsan_unaligned_write##n(void* p) { emu::hook(p, n, emu::kWrite, TL_EMU_PC, false); }                      \
  void __tsan_volatile_read##n(void* p) { emu::hook(p, n, emu::kRead, TL_EMU_PC, true); }                          \
  void __tsan_volatile_write##n(void* p) { emu::hook(p, n, emu::kWrite, TL_EMU_PC, true); }
TL_EMU_HOOKS(1)
TL_EMU_HOOKS(2)
TL_EMU_HOOKS(4)
TL_EMU_HOOKS(8)
TL_EMU_HOOKS(16)
#undef TL_EMU_HOOKS
void __tsan_read_range(void* p, unsigned long n) { emu::hook(p, (emu::u32)n, emu::kRead, TL_EMU_PC, false); }
void __tsan_write_range(void* p, unsigned long n) { emu::hook(p, (emu::u32)n, emu::kWrite, TL_EMU_PC, false); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
// clang copies a vector of 16 bytes by this call, which must be as aligned as the instruction that a device has for it.
void* __tsan_memcpy(void* to, const void* from, unsigned long n) {
  bool vector = n == 2 || n == 4 || n == 8 || n == 16;
  emu::hook(from, (emu::u32)n, emu::kRead, TL_EMU_PC, vector);
  emu::hook(to, (emu::u32)n, emu::kWrite, TL_EMU_PC, vector);
  return memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, unsigned long n) {
  emu::hook(from, (emu::u32)n, emu::kRead, TL_EMU_PC, false);
  emu::hook(to, (emu::u32)n, emu::kWrite, TL_EMU_PC, false);
  return memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, unsigned long n) {
  emu::hook(to, (emu::u32)n, emu::kWrite, TL_EMU_PC, false);
  return memset(to, value, n);
}

void tl_emu_atomic(const void* p, int bytes) {
  ++emu::counters.atomics;
  if (!emu::launched || emu::on_stacks(p)) return;
  const void* pc = TL_EMU_PC;
  p = emu::through_window(p, (emu::u32)bytes, emu::kAtomicUpdate, pc);
  emu::Space* space = emu::check_access(p, (emu::u32)bytes, emu::kAtomicUpdate, pc, true);
  if (space && space->global && emu::settings.checks) emu::hand_over((const emu::u8*)p);
}
}
