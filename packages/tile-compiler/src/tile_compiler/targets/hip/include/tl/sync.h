// Barriers (ISA, "Program Flow Control: S_BARRIER"). The instruction alone orders nothing that the compiler knows of, so
// each stands between two fences ("Memory Model" in LLVM's guide). There are no barriers of a part of a block.
#pragma once

namespace tl {

TL_DEVICE void sync_threads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// The lanes of a wave run in step; this keeps the compiler from moving memory accesses across.
TL_DEVICE void sync_warp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

// Orders a thread's accesses to memory for the whole device; the accesses of other threads do not wait.
TL_DEVICE void fence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }

}  // namespace tl
