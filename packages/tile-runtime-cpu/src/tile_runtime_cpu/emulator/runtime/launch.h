// What only some parts of the runtime need from each other.
#pragma once

#include "state.h"

namespace emu {

struct MmaOperands {
  void* c;
  const void *a, *b;
};

extern std::vector<Space> spaces;  // global buffers

// What runs the block of a number, for as long as the callable lives. (std::function has a compiled part: see alone.cpp.)
class BlockRunner {
 public:
  template <class F>
  BlockRunner(const F& f) : self(&f), call([](const void* f, u64 number) { return (*(const F*)f)(number); }) {}
  bool operator()(u64 number) const { return call(self, number); }

 private:
  const void* self;
  bool (*call)(const void*, u64);
};

typedef int (*stop_hook)(int stop, unsigned x, unsigned y, unsigned z, void* shared);  // not 0: leave the kernel
void set_stop_hook(stop_hook hook);
void reset_stops();


bool in_image(const void* p);      // of the kernel's shared object
void start_clock();
void look_at_clock_later();
double processor_seconds();  // of this thread
void forget_crew();
bool worth_a_crew(u64 done, u64 all, double seconds_so_far);
bool run_crew(const std::vector<u64>& order, u64 done, BlockRunner run_one);
void forget_last_hit();
void reset_barriers();
void check_barriers();
void record_traffic(const Space& space, const void* address, u32 size, const void* pc, bool copy = false);
void finish_traffic();
void multiply_accumulate(MmaOperands* const* lanes, tl_emu_element a_type, tl_emu_element b_type, int depth, int form);

// An operand that must lie in shared memory.
void check_shared(const void* address, u32 size, Access access, const void* pc);
Space* global_space(const u8* address);
void check_global_range(const u8* address, u32 size, Access access, const void* pc);
void check_shared_range(const void* address, u32 size, const void* pc);  // bounds and alignment only

}  // namespace emu
