// mbarriers and proxy fences; their state lives in the runtime.
#pragma once

namespace tl {

TL_DEVICE void mbarrier_init(uint64_t* barrier, uint32_t count) { tl_emu_mbarrier_init(barrier, count); }
TL_DEVICE void mbarrier_inval(uint64_t* barrier) { tl_emu_mbarrier_inval(barrier); }
TL_DEVICE void fence_mbarrier_init() { tl_emu_fence(0); }
TL_DEVICE void fence_proxy_async() { tl_emu_fence(1); }
TL_DEVICE void fence_proxy_async_shared() { tl_emu_fence(1); }

TL_DEVICE void mbarrier_arrive(uint64_t* barrier, uint32_t count = 1) { tl_emu_mbarrier_arrive(barrier, -1, count, 0, 1); }
TL_DEVICE void mbarrier_expect_tx(uint64_t* barrier, uint32_t bytes) { tl_emu_mbarrier_arrive(barrier, -1, 0, bytes, 0); }
TL_DEVICE void mbarrier_arrive_expect_tx(uint64_t* barrier, uint32_t bytes) {
  tl_emu_mbarrier_arrive(barrier, -1, 1, bytes, 1);
}
TL_DEVICE void mbarrier_arrive_cluster(uint64_t* barrier, uint32_t rank, uint32_t count = 1) {
  tl_emu_mbarrier_arrive(barrier, (int)rank, count, 0, 1);
}
TL_DEVICE void mbarrier_arrive_cluster_reads(uint64_t* barrier, uint32_t rank) {
  tl_emu_mbarrier_arrive(barrier, (int)rank, 1, 0, 1);
}
TL_DEVICE void mbarrier_arrive_expect_tx_cluster(uint64_t* barrier, uint32_t rank, uint32_t bytes) {
  tl_emu_mbarrier_arrive(barrier, (int)rank, 1, bytes, 1);
}

TL_DEVICE bool mbarrier_test_wait(uint64_t* barrier, uint32_t parity) { return tl_emu_mbarrier_wait(barrier, parity, 0); }
TL_DEVICE bool mbarrier_try_wait(uint64_t* barrier, uint32_t parity) { return tl_emu_mbarrier_wait(barrier, parity, 1); }
TL_DEVICE bool mbarrier_try_wait_others(uint64_t* barrier, uint32_t parity) {
  return tl_emu_mbarrier_wait(barrier, parity, 1);
}
TL_DEVICE void mbarrier_wait(uint64_t* barrier, uint32_t parity) { tl_emu_mbarrier_wait(barrier, parity, 2); }
TL_DEVICE void mbarrier_wait_others(uint64_t* barrier, uint32_t parity) { tl_emu_mbarrier_wait(barrier, parity, 2); }

TL_DEVICE void cp_async_mbarrier_arrive(uint64_t* barrier) { tl_emu_cp_async_mbarrier_arrive(barrier); }

}  // namespace tl
