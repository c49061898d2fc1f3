// The whole runtime as one translation unit: it is compiled once per machine, by one call of the host's compiler.
#include "fibers.cpp"
#include "shadow.cpp"
#include "memory.cpp"
#include "traffic.cpp"
#include "collectives.cpp"
#include "mma.cpp"
#include "async_copy.cpp"
#include "launch.cpp"
