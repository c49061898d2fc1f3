// Barriers in shared memory that count arrivals and bytes (PTX ISA, "Parallel Synchronization and Communication
// Instructions: mbarrier"), and the fences between the generic and the asynchronous proxy ("membar / fence").
//
// A phase ends when all expected arrivals have come and no bytes are outstanding. A thread waits for a phase by its parity:
// 0 for the first, 1 for the second, 0 for the third. Waiting for parity 1 of a fresh barrier returns at once, so that a
// producer's first wait for an empty stage falls through.
#pragma once

namespace tl {

#if TL_HAS(900)

// One thread, before any other operation: phases end after `count` arrivals (1 to 2^20 - 1).
TL_DEVICE void mbarrier_init(uint64_t* barrier, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(detail::shared_address(barrier)), "r"(count) : "memory");
}

// Makes the memory ordinary again.
TL_DEVICE void mbarrier_inval(uint64_t* barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(detail::shared_address(barrier)) : "memory");
}

// Makes earlier mbarrier_init of this thread visible to the cluster and to asynchronous copies, once a barrier of the block
// or cluster follows.
TL_DEVICE void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Orders ordinary accesses of this thread before asynchronous ones (bulk copies, wgmma) that follow it, and the reverse.
// Each writer calls it, then a barrier, then the asynchronous operation may read what was written.
TL_DEVICE void fence_proxy_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
TL_DEVICE void fence_proxy_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// `count` arrivals of this thread, which releases its earlier accesses to those who wait.
TL_DEVICE void mbarrier_arrive(uint64_t* barrier, uint32_t count = 1) {
  asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(detail::shared_address(barrier)), "r"(count)
               : "memory");
}

// The phase ends only after `bytes` more have been copied (at most 2^20 - 1 outstanding).
TL_DEVICE void mbarrier_expect_tx(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(detail::shared_address(barrier)), "r"(bytes)
               : "memory");
}

// mbarrier_expect_tx, then one arrival.
TL_DEVICE void mbarrier_arrive_expect_tx(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%0], %1;" ::"r"(detail::shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// Arrival at the barrier at the same place in the shared memory of another block of the cluster.
TL_DEVICE void mbarrier_arrive_cluster(uint64_t* barrier, uint32_t rank, uint32_t count = 1) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote], %2;\n}" ::"r"(detail::shared_address(barrier)),
      "r"(rank), "r"(count)
      : "memory");
}
// The same by a thread that has only read: its reads are over, but nothing that it wrote is released to the other block.
// Without the release at cluster scope there is no fence of the whole device before it, which costs hundreds of clocks.
TL_DEVICE void mbarrier_arrive_cluster_reads(uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.release.cta.shared::cluster.b64 _, [remote];\n}" ::"r"(detail::shared_address(barrier)),
      "r"(rank)
      : "memory");
}
TL_DEVICE void mbarrier_arrive_expect_tx_cluster(uint64_t* barrier, uint32_t rank, uint32_t bytes) {
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64 _, [remote], %2;\n}" ::"r"(
          detail::shared_address(barrier)),
      "r"(rank), "r"(bytes)
      : "memory");
}

// Whether the phase of this parity has ended; if so, what was released to it is visible. test: looks once. try: may wait a
// while for it, as long as the hardware likes.
#define TL_MBARRIER_ASK(name, text)                                                                            \
  TL_DEVICE bool name(uint64_t* barrier, uint32_t parity) {                                                    \
    uint32_t done;                                                                                             \
    asm volatile("{\n.reg .pred p;\nmbarrier." text ".shared::cta.b64 p, [%1], %2;\n"                          \
                 "selp.b32 %0, 1, 0, p;\n}"                                                                    \
                 : "=r"(done)                                                                                  \
                 : "r"(detail::shared_address(barrier)), "r"(parity)                                           \
                 : "memory");                                                                                  \
    return done;                                                                                               \
  }
TL_MBARRIER_ASK(mbarrier_test_wait, "test_wait.parity")
TL_MBARRIER_ASK(mbarrier_try_wait, "try_wait.parity")
TL_MBARRIER_ASK(mbarrier_try_wait_others, "try_wait.parity.acquire.cluster")  // by other blocks of the cluster too
#undef TL_MBARRIER_ASK

// Waits until the phase of this parity has ended.
TL_DEVICE void mbarrier_wait(uint64_t* barrier, uint32_t parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}
// The same where other blocks of the cluster arrive, and what they wrote must be visible.
TL_DEVICE void mbarrier_wait_others(uint64_t* barrier, uint32_t parity) {
  while (!mbarrier_try_wait_others(barrier, parity)) {
  }
}

// One arrival when all earlier cp_async of this thread have landed; it is one of the expected ones (noinc).
TL_DEVICE void cp_async_mbarrier_arrive(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(detail::shared_address(barrier)) : "memory");
}

#endif

}  // namespace tl
