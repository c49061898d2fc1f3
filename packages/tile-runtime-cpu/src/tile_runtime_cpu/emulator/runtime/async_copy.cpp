// cp.async (PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy: cp.async").
//
// Settings.late says when data move: at the wait, in random order, or at the issue. Both happen on hardware. Between the
// two the destination is in flight in either mode, and nobody may touch it, the issuing thread included.
#include <utility>

#include "launch.h"
#include "state.h"

namespace emu {

void reset_copies(Thread& thread) {
  thread.open.clear();
  thread.groups.clear();
}

static void move(const Copy& c) {
  if (c.valid) memcpy(c.destination, c.source, (size_t)c.bytes);
  else memset(c.destination, 0, (size_t)c.bytes);
}

}  // namespace emu

using namespace emu;

extern "C" {

void tl_emu_cp_async(void* shared, const void* global, int bytes, int valid) {
  const void* pc = TL_EMU_PC;
  settle_same_value();
  shared = through_window(shared, (u32)bytes, kWrite, pc);
  Copy copy{(u8*)shared, (const u8*)global, bytes, valid != 0, pc};
  ++counters.cp_async;
  if (valid) {
    counters.cp_async_bytes += (u64)bytes;
    Space* space = check_access(global, (u32)bytes, kRead, pc, true);
    if (space) record_traffic(*space, global, (u32)bytes, pc, true);
  }
  check_shared_range(shared, (u32)bytes, pc);
  record_traffic(own_shared(), shared, (u32)bytes, pc, true);
  if (settings.checks) mark_in_flight(own_shared(), copy.destination, (u32)bytes, pc);
  if (settings.late) memset(shared, 0xff, (size_t)bytes);
  else move(copy);
  current->open.push_back(copy);
}

void tl_emu_cp_async_commit() {
  current->groups.push_back(std::move(current->open));
  current->open.clear();
}

void tl_emu_cp_async_wait(int pending) {
  settle_same_value();
  Thread* self = current;
  int finished = (int)self->groups.size() - pending;
  if (finished <= 0) return;
  for (int i = 0; i < finished; ++i) {
    std::vector<Copy>& group = self->groups[i];
    for (size_t n = group.size(); n; --n) {
      if (settings.late) std::swap(group[n - 1], group[random_number() % n]);
      const Copy& copy = group[n - 1];
      if (settings.late) move(copy);
      if (settings.checks) land(own_shared(), copy.destination, (u32)copy.bytes);
    }
  }
  self->groups.erase(self->groups.begin(), self->groups.begin() + finished);
}
}
