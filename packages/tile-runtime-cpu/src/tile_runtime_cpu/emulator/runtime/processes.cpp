// Blocks on several processes.
//
// A launch whose first blocks took long enough continues in copies of this process, made by fork: blocks are dealt out in
// turn. Global memory is shared by all of them, everything else of theirs is private. That gives the results of one
// process exactly as long as no block sees what another one does. So each process marks what it reads and writes in global
// memory, byte by byte, and afterwards the marks of each are held against those of all others. If two meet, or anything
// else happens in which the order of blocks has a say (a finding, an atomic on global memory, a print, a process that
// ends early), the launch is done again, from the start, by one process. So what is computed, found and said is always
// what one process computes, finds and says.
//
// A child calls nothing of Python's and ends by _exit.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>

#include "launch.h"
#include "state.h"

namespace emu {

constexpr int kMaxProcesses = 64;

struct Crew {  // in memory that the processes share
  int needs_order, finished;
  Counters counters[kMaxProcesses];
};
static Crew* crew;

static void request_order() { __atomic_store_n(&crew->needs_order, 1, __ATOMIC_RELAXED); }

static bool order_requested() { return __atomic_load_n(&crew->needs_order, __ATOMIC_RELAXED); }

static void* shared_pages(u64 bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : p;
}

// ---- marks ---------------------------------------------------------------------------------------------------------------
// Of 16 bytes: a bit for each that was written, and for each that was read.
struct Mark {
  uint16_t written, read;
};

static void mark_bytes(Space& space, const u8* address, u32 size, bool write) {
  u64 offset = (u64)(address - space.low);
  while (size) {
    u32 first = offset & 15, count = 16 - first < size ? 16 - first : size;
    uint16_t bytes = (uint16_t)(((1u << count) - 1u) << first);
    Mark& mark = space.marks[offset >> 4];
    if (write) mark.written |= bytes;
    else mark.read |= bytes;
    size -= count;
    offset += count;
  }
}

static u64 marks_of(const Space& space) { return ((u64)(space.high - space.low) + 15) / 16; }

// Whether a process wrote what another one read or wrote.
static bool marks_meet(const Space& space, const Mark* marks, int processes) {
  u64 count = marks_of(space);
  for (u64 i = 0; i < count; ++i) {
    uint16_t written = 0, read = 0;
    for (int p = 0; p < processes; ++p) {
      const Mark& mark = marks[(u64)p * count + i];
      if ((mark.written & (written | read)) || (mark.read & written)) return true;
      written |= mark.written;
      read |= mark.read;
    }
  }
  return false;
}

// ---- the crew --------------------------------------------------------------------------------------------------------------
static bool order_matters_here;  // in this process, since the launch began
static int crew_size = 1;

void forget_crew() {
  crew = nullptr;
  crew_size = 1;
  order_matters_here = false;
}

// Something whose meaning or trace depends on which block comes first: an atomic on global memory, a print.
void order_matters() {
  order_matters_here = true;
  if (!crew) return;
  request_order();
  abandon();
}

// An access to memory that is watched.
void note_access(Space& space, const u8* address, u32 size, bool write, bool atomic) {
  if (atomic && space.global) order_matters();
  if (space.marks) mark_bytes(space, address, size, write);
}

bool worth_a_crew(u64 done, u64 all, double seconds_so_far) {
  if (settings.processes < 2 || !settings.checks || order_matters_here || all - done < 2 || done == 0) return false;
  for (const Space& s : spaces) {
    if (s.writable && !s.granules) return false;  // too large to be watched: nobody would see that blocks meet in it
  }
  return seconds_so_far / (double)done * (double)(all - done) >= settings.worthwhile_seconds;
}

// The part of one of `processes`.
static void work(int number, int processes, const std::vector<u64>& order, u64 done, BlockRunner run_one) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!own_shared_memory()) _exit(1);
  counters = Counters{};
  for (u64 i = done + (u64)number; i < order.size() && !order_requested(); i += (u64)processes) {
    if (!run_one(order[i])) request_order();
  }
  crew->counters[number] = counters;
  __atomic_fetch_add(&crew->finished, 1, __ATOMIC_RELEASE);
  _exit(0);
}

// The blocks from `done` on. False: the launch must be done again by one process.
bool run_crew(const std::vector<u64>& order, u64 done, BlockRunner run_one) {
  int processes = settings.processes < kMaxProcesses ? settings.processes : kMaxProcesses;
  if ((u64)processes > order.size() - done) processes = (int)(order.size() - done);
  crew = (Crew*)shared_pages(sizeof(Crew));
  if (!crew) return false;
  std::vector<Mark*> marks(spaces.size());
  for (size_t i = 0; i < spaces.size(); ++i) {
    if (!spaces[i].writable) continue;
    marks[i] = (Mark*)shared_pages(marks_of(spaces[i]) * sizeof(Mark) * (u64)processes);
    if (!marks[i]) request_order();
  }
  std::vector<pid_t> children;
  for (int p = 0; p < processes && !order_requested(); ++p) {
    pid_t child = fork();
    if (child == 0) {
      for (size_t i = 0; i < spaces.size(); ++i) {
        if (marks[i]) spaces[i].marks = marks[i] + marks_of(spaces[i]) * (u64)p;
      }
      work(p, processes, order, done, run_one);
    }
    if (child > 0) children.push_back(child);
    else request_order();
  }
  for (pid_t child : children) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}  // somebody else may have asked: `finished` tells then
    if (status) request_order();
  }
  bool good = !order_requested() && crew->finished == (int)children.size();
  for (size_t i = 0; i < spaces.size(); ++i) {
    if (!marks[i]) continue;
    if (good) good = !marks_meet(spaces[i], marks[i], processes);
    munmap(marks[i], marks_of(spaces[i]) * sizeof(Mark) * (u64)processes);
  }
  for (int p = 0; p < processes; ++p) {
    const u64* theirs = (const u64*)&crew->counters[p];
    for (size_t i = 0; i < sizeof(Counters) / sizeof(u64); ++i) ((u64*)&counters)[i] += theirs[i];
  }
  munmap(crew, sizeof(Crew));
  crew = nullptr;
  crew_size = (int)children.size();
  return good;
}

}  // namespace emu
