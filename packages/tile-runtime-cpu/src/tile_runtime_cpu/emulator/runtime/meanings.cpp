// Meanings of instructions that the user gave in Python.
//
// Python runs in a host thread of its own: a fiber's stack is small, and an interpreter may mind which stack it is on.
#include <pthread.h>

#include "state.h"

namespace emu {

// Writes the result; not 0: it raised, and the launch ends.
typedef int (*Meaning)(const char* name, const char* signature, const u64* operands, u64* result);
static Meaning meaning;

struct Question {
  const char *name, *signature;
  const u64* operands;
  u64 result;
  int failed;
};

static void* answer(void* place) {
  Question* question = (Question*)place;
  question->failed = meaning(question->name, question->signature, question->operands, &question->result);
  return nullptr;
}

}  // namespace emu

extern "C" {

void tl_emu_set_meaning(emu::Meaning function) { emu::meaning = function; }

uint64_t tl_emu_meaning(const char* name, const char* signature, const uint64_t* operands) {
  emu::Question question = {name, signature, operands, 0, 1};
  pthread_t thread;
  if (emu::meaning && pthread_create(&thread, nullptr, emu::answer, &question) == 0) pthread_join(thread, nullptr);
  if (question.failed) emu::abandon();
  return question.result;
}
}
