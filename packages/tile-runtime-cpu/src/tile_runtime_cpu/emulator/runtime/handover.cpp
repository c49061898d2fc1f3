// What a block has done before it hands on to others: a fence, then an atomic on global memory, which another block's atomic
// on the same place meets before a fence of its own (PTX ISA, "Memory Consistency Model", release and acquire patterns).
//
// Blocks run one after the other here, so a later one sees everything; this tells what it may rely on.
#include <algorithm>

#include "state.h"

namespace emu {

struct Past {  // of a block: the clocks of its threads up to which others know what they did
  u32 block;
  std::vector<u32> clock;
};

struct Handed {  // by block, each once
  std::vector<Past> blocks;
};

struct Meeting {  // a place that blocks update by atomics
  const u8* address;
  const Handed* handed;
};

static std::vector<Handed*> all_handed;
static std::vector<Meeting> meetings;  // by address

void forget_handed() {
  for (Handed* h : all_handed) delete h;
  all_handed.clear();
  meetings.clear();
}

static const Handed* kept(Handed* handed) {
  all_handed.push_back(handed);
  return handed;
}

static bool comes_first(const Past& a, const Past& b) { return a.block < b.block; }

const Handed* both(const Handed* a, const Handed* b) {
  if (!a || a == b) return b;
  if (!b) return a;
  Handed* made = new Handed(*a);
  for (const Past& past : b->blocks) {
    auto at = std::lower_bound(made->blocks.begin(), made->blocks.end(), past, comes_first);
    if (at == made->blocks.end() || at->block != past.block) {
      made->blocks.insert(at, past);
      continue;
    }
    if (at->clock.size() < past.clock.size()) at->clock.resize(past.clock.size(), 0);
    for (size_t t = 0; t < past.clock.size(); ++t) at->clock[t] = std::max(at->clock[t], past.clock[t]);
  }
  return kept(made);
}

bool is_handed(const Handed* handed, u32 number, int thread, u32 clock) {
  if (!handed) return false;
  auto at = std::lower_bound(handed->blocks.begin(), handed->blocks.end(), Past{number, {}}, comes_first);
  if (at == handed->blocks.end() || at->block != number) return false;
  return (size_t)thread < at->clock.size() && clock <= at->clock[(size_t)thread];
}

// An atomic on global memory: learns what was handed on there, and hands on what the thread's last fence has seen.
void hand_over(const u8* address) {
  Thread& thread = *current;
  auto at = std::lower_bound(meetings.begin(), meetings.end(), address, [](const Meeting& m, const u8* a) { return m.address < a; });
  bool known = at != meetings.end() && at->address == address;
  if (known) thread.met = both(thread.met, at->handed);
  if (!thread.fenced) return;
  if (known) at->handed = both(at->handed, thread.fenced);
  else meetings.insert(at, {address, thread.fenced});
}

}  // namespace emu

using namespace emu;

extern "C" void tl_emu_thread_fence() {
  if (!settings.checks) return;
  settle_same_value();
  Thread& thread = *current;
  if (thread.met) {
    learn(thread, thread.met);
    thread.met = nullptr;
  }
  Row* now = new_row();
  release_to(*now, thread);
  Handed* own = new Handed{{Past{block.number, {now->clock, now->clock + now->columns}}}};
  thread.fenced = both(now->others, kept(own));
  now->references = 1;
  drop_row(now);
}
