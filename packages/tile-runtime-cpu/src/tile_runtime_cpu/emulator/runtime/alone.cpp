// Memory for a runtime that is linked with libc alone. zig builds its C++ library from source on the first use, in two
// minutes of processor time; this runtime needs nothing of it that templates do not bring, but these two.
#ifdef TL_EMU_ALONE
#include <stdlib.h>

#include <new>

void* operator new(size_t size) {
  void* made = malloc(size ? size : 1);
  if (!made) abort();
  return made;
}

void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }
#endif
