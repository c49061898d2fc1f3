// Stops: places in the text where threads wait until no thread of the block can go on, and the host looks at the block.
// A stop is no barrier: it orders nothing. Only texts that emulator/stops.py has prepared call these functions.
#include <algorithm>
#include <utility>

#include "launch.h"
#include "state.h"

namespace emu {

static stop_hook host_hook;
static std::vector<std::pair<int, Thread*>> stopped;  // at which stop
static std::vector<const void*> shown[kMaxResident];  // by slot: where an array of the thread is, while it is in scope
static int reached;
static const Thread* there;  // one of those that have reached it
static bool refused;

void set_stop_hook(stop_hook chosen) { host_hook = chosen; }

void reset_stops() {
  stopped.clear();
  for (int t = 0; t < block.slots; ++t) shown[t].clear();
}

static void call_hook() {
  tl_emu_index b = there->self->block_index;
  launched = false;  // what the host does now is its own
  refused = host_hook(reached, b.x, b.y, b.z, there->self->shared) != 0;
  launched = true;
}

// Blocks of a cluster stop each by itself.
bool release_stopped() {
  if (stopped.empty()) return false;
  typedef std::pair<int, Thread*> Stopped;
  auto before = [](const Stopped& a, const Stopped& b) {
    return std::make_pair(a.second->rank, a.first) < std::make_pair(b.second->rank, b.first);
  };
  const Stopped first = *std::min_element(stopped.begin(), stopped.end(), before);
  reached = first.first;
  there = first.second;
  on_launcher_stack(call_hook);
  if (refused) abandon();
  auto here = std::partition(stopped.begin(), stopped.end(),
                             [&](const Stopped& s) { return before(s, first) || before(first, s); });
  for (auto s = here; s != stopped.end(); ++s) make_runnable(s->second);
  stopped.erase(here, stopped.end());
  return true;
}

}  // namespace emu

using namespace emu;

extern "C" {

void tl_emu_stop(int number) {
  settle_same_value();
  if (!host_hook) return;
  stopped.emplace_back(number, current);
  wait_here();
}

void tl_emu_show(int slot, const void* array) {
  std::vector<const void*>& mine = shown[current->id];
  if ((int)mine.size() <= slot) mine.resize((size_t)slot + 1);
  mine[(size_t)slot] = array;
}

// The address of an array in each thread of the block that has stopped; null where it is not in scope.
void tl_emu_shown(int slot, const void** out) {
  const std::vector<const void*>* mine = shown + there->rank * (block.slots / block.size);
  for (int t = 0; t < block.threads; ++t) out[t] = slot < (int)mine[t].size() ? mine[t][(size_t)slot] : nullptr;
}
}
