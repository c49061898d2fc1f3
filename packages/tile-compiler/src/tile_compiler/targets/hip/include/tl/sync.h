// Barriers (ISA, "Program Flow Control: S_BARRIER"). The instruction alone orders nothing that the compiler knows of, so
// each stands between two fences ("Memory Model" in LLVM's guide). There are no barriers of a part of a block.
#pragma once

namespace tl {

#if TL_GFX942
// A fence would wait for loads to LDS too, which count as writes of LDS until wait_loads covers them, and so end the
// overlap of a pipelined loop. What the block's other waves must see are accesses to LDS (lgkmcnt); those to global memory
// pass one cache of the compute unit in order ("Memory Model gfx942": without TgSplit the waits for vmcnt are left out).
TL_DEVICE void sync_threads() {
  asm volatile("s_waitcnt lgkmcnt(0)" ::: "memory");
  __builtin_amdgcn_s_barrier();
  asm volatile("" ::: "memory");
}
#else
TL_DEVICE void sync_threads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#endif

// The lanes of a wave run in step; this keeps the compiler from moving memory accesses across.
TL_DEVICE void sync_warp() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

// Orders a thread's accesses to memory for the whole device; the accesses of other threads do not wait.
TL_DEVICE void fence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }

}  // namespace tl
