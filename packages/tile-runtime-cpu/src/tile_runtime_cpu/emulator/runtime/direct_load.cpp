// Loads straight to shared memory and s_waitcnt vmcnt ("AMD Instinct MI300" CDNA3 ISA, "Memory Buffer Load to LDS", "Manually
// Inserted Wait States and dependency resolution by S_WAITCNT").
//
// The address in shared memory comes from M0, of which a wave has one; the hardware adds lane * bytes. A lane that does not
// take part would be no error there; here all lanes do, which is what the compiler generates, so that the address can be
// compared. Loads complete in the order of issue. What Settings.late means for cp.async, it means here.
#include "launch.h"
#include "state.h"

namespace emu {

void reset_loads(Thread& thread) {
  thread.loads.clear();
  thread.landed = 0;
}

// Of the wave's last lane, when all have given their addresses.
static void check_same_destination(const void* pc) {
  const Thread* lanes = lanes_of_warp();
  int first = __builtin_ctzll(warps[current->warp].all);
  for (int lane = first; lane < settings.warp_size; ++lane) {
    if (!(warps[current->warp].all >> lane & 1) || lanes[lane].operands == lanes[first].operands) continue;
    current = &threads[lanes[lane].id];
    fail(kNotUniform, pc, lanes[first].id);
  }
}

}  // namespace emu

using namespace emu;

extern "C" {

void tl_emu_load_to_lds(void* shared, const void* global, int bytes) {
  const void* pc = TL_EMU_PC;
  if (meet(kDirectLoad, shared, pc)) check_same_destination(pc);
  u8* destination = through_window((u8*)shared + current->lane * bytes, (u32)bytes, kWrite, pc);
  Copy load{destination, (const u8*)global, bytes, true, pc};
  ++counters.direct_loads;
  Space* space = check_access(global, (u32)bytes, kRead, pc, true);
  if (space) record_traffic(*space, global, (u32)bytes, pc);
  check_shared_range(load.destination, (u32)bytes, pc);
  if (settings.checks) mark_in_flight(own_shared(), load.destination, (u32)bytes, pc);
  if (settings.late) memset(load.destination, 0xff, (size_t)bytes);
  else move(load);
  current->loads.push_back(load);
}

void tl_emu_wait_loads(int pending) {
  settle_same_value();
  Thread* self = current;
  for (; self->landed + (size_t)pending < self->loads.size(); ++self->landed) {
    const Copy& load = self->loads[self->landed];
    if (settings.late) move(load);
    if (settings.checks) land(own_shared(), load.destination, (u32)load.bytes);
  }
  if (self->landed == self->loads.size()) reset_loads(*self);
}
}
