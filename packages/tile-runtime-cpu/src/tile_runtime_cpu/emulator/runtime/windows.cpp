// Shared memory, and windows onto it: each declaration of a buffer in the text sees the same bytes at addresses of its own.
//
// A device text gets all buffers from one pointer, tl::shared_memory(), by offsets; an address says nothing of the buffer
// that it was computed from. Here the pointer is asked for by a line of the text, and each line has a window: the same pages
// mapped once more. So the address of an access names its declaration, whatever was added to it, and an access that leaves
// the declared bytes is found although it stays inside shared memory. Buffers whose lives do not overlap may share bytes.
//
// Everything behind through_window() knows the addresses of window 0 only, which has no bounds of its own.
#include <sys/mman.h>
#include <unistd.h>

#include "launch.h"
#include "state.h"

namespace emu {

constexpr u64 kStride = 1ull << kSharedStrideBits;

static std::vector<Window> windows;  // of this launch, from number 1 on
static int shared_file = -1;
static u8* area;
static int mapped_windows[kMaxBlocks];  // of each block, window 0 included

static bool map_window(int rank, int window) {
  u8* at = area + (u64)window * kWindowStride + (u64)rank * kStride;
  int flags = MAP_SHARED | MAP_FIXED;
  return mmap(at, kSharedBytes, PROT_READ | PROT_WRITE, flags, shared_file, (off_t)((u64)rank * kStride)) == at;
}

static bool map_all() {
  for (int rank = 0; rank < kMaxBlocks; ++rank) {
    for (int w = 0; w < mapped_windows[rank]; ++w) {
      if (!map_window(rank, w)) return false;
    }
  }
  return true;
}

static bool open_file() {
  shared_file = memfd_create("shared memory", MFD_CLOEXEC);
  return shared_file >= 0 && ftruncate(shared_file, (off_t)(kMaxBlocks * kStride)) == 0;
}

// A forked process has its parent's shared memory until it makes some of its own.
bool own_shared_memory() { return open_file() && map_all(); }

bool prepare_shared(int count) {
  // Unmapped pages around each: what misses shared memory by little must not hit a neighbour.
  if (!area) {
    u64 bytes = (kMaxWindows + 1) * kWindowStride + kStride;
    void* mapped = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED || !open_file()) return false;
    area = (u8*)mapped + kStride;
  }
  for (int rank = 0; rank < count; ++rank) {
    Space& space = shared_spaces[rank];
    for (; mapped_windows[rank] < (int)windows.size() + 1; ++mapped_windows[rank]) {
      if (!map_window(rank, mapped_windows[rank])) return false;
    }
    if (space.low) continue;
    space.granules = (Granule*)calloc(kSharedBytes / 16, sizeof(Granule));
    if (!space.granules) return false;
    space.low = area + rank * kStride;
    space.writable = true;
    space.index = -1;
  }
  return true;
}

bool inside_window(int number, u64 offset, u32 size) {
  if (number == 0 || number > (int)windows.size()) return true;
  const Window& w = windows[(size_t)number - 1];
  return offset >= w.low && offset + size <= w.high;
}

u8* leave_window(const u8* p, u32 size, Access access, const void* pc) {
  u64 place = (u64)(p - area);
  int number = (int)(place / kWindowStride);
  u8* canonical = area + place % kWindowStride;
  if (settings.checks && !inside_window(number, place % kStride, size)) {
    add_finding(kOutOfBounds, &shared_spaces[place % kWindowStride / kStride], canonical, (int)size, -1, pc, 0, access, number);
    abandon();
  }
  return canonical;
}

}  // namespace emu

using namespace emu;

extern "C" {

// Of the next launch.
void tl_emu_set_windows(const Window* list, int count) {
  windows.assign(list, list + (count < kMaxWindows ? count : kMaxWindows));
}

unsigned char* tl_emu_shared(int line) {
  u8* base = (u8*)tl_emu_self()->shared;
  for (size_t i = 0; i < windows.size(); ++i) {
    if (windows[i].line == line) return base + (i + 1) * kWindowStride;
  }
  return base;
}
}
