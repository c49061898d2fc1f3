// What the accesses of a warp cost: sectors of 32 bytes in global memory, wavefronts of 32 banks in shared memory (CUDA C++
// Best Practices Guide, "Coalesced Access to Global Memory", "Shared Memory and Memory Banks").
//
// Lanes run one after the other here. The n-th access of each lane at one place in the code belong to one request of the
// warp; a request is counted when all lanes have made it, or at the end of the block.
#include <algorithm>
#include <map>

#include "launch.h"
#include "state.h"

namespace emu {

struct Request {
  u64 lanes;
  u64 address[64];
};

struct Place {  // of one warp
  u32 size;
  bool global, copy;
  u64 first;                       // number of the oldest open request
  u64 made[64];                    // accesses by each lane
  std::vector<Request> requests;   // open ones, from `first`
};

static std::map<u64, Place> places[kMaxWarps];

static void count_global(const Request& request, u32 size) {
  u64 sectors[128];
  int n = 0;
  for (u64 lanes = request.lanes; lanes; lanes &= lanes - 1) {
    u64 a = request.address[__builtin_ctzll(lanes)];
    for (u64 s = a >> 5; s <= (a + size - 1) >> 5 && n < 128; ++s) sectors[n++] = s;
  }
  std::sort(sectors, sectors + n, [](u64 a, u64 b) { return a < b; });
  counters.global_sectors += (u64)(std::unique(sectors, sectors + n) - sectors);
  ++counters.global_requests;
}

// Accesses of 8 and 16 bytes are made by half and quarter warps. In each part a bank serves one word of 4 bytes at a time.
static void count_shared(const Request& request, u32 size, bool copy) {
  int lanes_at_once = size <= 4 ? 32 : size == 8 ? 16 : 8;
  for (int first = 0; first < settings.warp_size; first += lanes_at_once) {
    std::vector<u64> words[32];
    size_t turns = 0;
    for (int lane = first; lane < first + lanes_at_once; ++lane) {
      if (!(request.lanes >> lane & 1)) continue;
      u64 a = request.address[lane];
      for (u64 w = a >> 2; w <= (a + size - 1) >> 2; ++w) {
        std::vector<u64>& bank = words[w & 31];
        if (std::find(bank.begin(), bank.end(), w) == bank.end()) bank.push_back(w);
        turns = std::max(turns, bank.size());
      }
    }
    (copy ? counters.cp_async_wavefronts : counters.shared_wavefronts) += turns;
  }
  ++(copy ? counters.cp_async_requests : counters.shared_requests);
}

static void count(const Place& place, const Request& request) {
  if (!request.lanes) return;
  if (place.global) count_global(request, place.size);
  else count_shared(request, place.size, place.copy);
}

void record_traffic(const Space& space, const void* address, u32 size, const void* pc, bool copy) {
  if (!settings.checks || size > 16) return;
  // An asynchronous copy reads global and writes shared memory at one place in the code.
  Place& place = places[current->warp][(u64)pc * 2 + (copy && !space.global)];
  place.size = size;
  place.global = space.global;
  place.copy = copy;
  u64 number = place.made[current->lane]++ - place.first;
  if (number >= place.requests.size()) place.requests.resize(number + 1);
  Request& request = place.requests[number];
  request.address[current->lane] = (u64)((const u8*)address - space.low);  // a device aligns buffers to 256 bytes
  request.lanes |= 1ull << current->lane;
  if (request.lanes != warps[current->warp].all) return;
  // Lanes make their requests in order: a complete one is the oldest, or older ones were made by some lanes only.
  for (u64 i = 0; i <= number; ++i) count(place, place.requests[i]);
  place.requests.erase(place.requests.begin(), place.requests.begin() + (long)number + 1);
  place.first += number + 1;
}

void finish_traffic() {
  for (int w = 0; w < block.warps; ++w) {
    for (auto& entry : places[w]) {
      for (const Request& request : entry.second.requests) count(entry.second, request);
    }
    places[w].clear();
  }
}

}  // namespace emu
