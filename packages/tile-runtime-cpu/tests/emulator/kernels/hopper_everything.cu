// Calls every function of the Hopper headers once: for the compilers, not for running.
#include "tl_cuda.cuh"

extern "C" __global__ void __launch_bounds__(256, 1)
    everything(const __grid_constant__ tl::tensor_map A, const __grid_constant__ tl::tensor_map B, float* C, tl::half_t* H) {
  unsigned char* s = tl::shared_memory();
  uint64_t* bar = (uint64_t*)(s + 65536);
  int t = threadIdx.x;
  if (t == 0) {
    tl::prefetch_tensor_map(&A);
    tl::mbarrier_init(bar, 3);
    tl::fence_mbarrier_init();
  }
  tl::cluster_sync();
  tl::cluster_arrive_relaxed();
  tl::cluster_wait();
  tl::grid_dependency_wait();
  tl::grid_dependency_launch();
  if (tl::elect_one()) {
    tl::mbarrier_arrive_expect_tx(bar, 4096);
    tl::mbarrier_expect_tx(bar, 16);
    tl::mbarrier_arrive_cluster(bar, tl::cluster_rank() ^ 1, 2);
    tl::mbarrier_arrive_cluster_reads(bar, tl::cluster_rank() ^ 1);
    tl::mbarrier_arrive_expect_tx_cluster(bar, tl::cluster_size() - 1, 64);
    tl::tma_load(s, &A, bar, t);
    tl::tma_load<tl::evict_first>(s, &A, bar, t, 1);
    tl::tma_load(s, &A, bar, t, 1, 2);
    tl::tma_load<tl::evict_last>(s, &A, bar, t, 1, 2, 3);
    tl::tma_load(s, &A, bar, t, 1, 2, 3, 4);
    tl::tma_load_multicast(s, &A, bar, 3, t);
    tl::tma_load_multicast<tl::evict_first>(s, &A, bar, 3, t, 1);
    tl::tma_load_multicast(s, &A, bar, 3, t, 1, 2);
    tl::tma_load_multicast(s, &A, bar, 3, t, 1, 2, 3);
    tl::tma_load_multicast(s, &A, bar, 3, t, 1, 2, 3, 4);
    tl::tma_prefetch(&A, t);
    tl::tma_prefetch(&A, t, 1);
    tl::tma_prefetch(&A, t, 1, 2);
    tl::tma_prefetch(&A, t, 1, 2, 3);
    tl::tma_prefetch(&A, t, 1, 2, 3, 4);
    tl::tma_store(&B, s, t);
    tl::tma_store<tl::evict_first>(&B, s, t, 1);
    tl::tma_store(&B, s, t, 1, 2);
    tl::tma_store(&B, s, t, 1, 2, 3);
    tl::tma_store(&B, s, t, 1, 2, 3, 4);
    tl::tma_reduce<tl::reduce_add>(&B, s, t);
    tl::tma_reduce<tl::reduce_min>(&B, s, t, 1);
    tl::tma_reduce<tl::reduce_max>(&B, s, t, 1, 2);
    tl::tma_reduce<tl::reduce_and>(&B, s, t, 1, 2, 3);
    tl::tma_reduce<tl::reduce_or>(&B, s, t, 1, 2, 3, 4);
    tl::tma_reduce<tl::reduce_xor>(&B, s, t, 1, 2, 3, 4);
    tl::bulk_prefetch(C, 1024);
    tl::bulk_load(s, C, 1024, bar);
    tl::bulk_load_multicast(s, C, 1024, bar, 3);
    tl::bulk_copy_cluster(s, s + 1024, 1024, bar, 1);
    tl::bulk_store(C, s, 1024);
    tl::bulk_reduce<tl::reduce_add>(C, (const float*)s, 1024);
    tl::bulk_reduce<tl::reduce_add>(H, (const tl::half_t*)s, 1024);
    tl::bulk_reduce<tl::reduce_min>(H, (const tl::half_t*)s, 1024);
    tl::bulk_reduce<tl::reduce_add>((tl::bfloat16_t*)H, (const tl::bfloat16_t*)s, 1024);
    tl::bulk_reduce<tl::reduce_max>((tl::bfloat16_t*)H, (const tl::bfloat16_t*)s, 1024);
    tl::bulk_reduce<tl::reduce_add>((double*)C, (const double*)s, 1024);
    tl::bulk_reduce<tl::reduce_and>((int32_t*)C, (const int32_t*)s, 1024);
    tl::bulk_reduce<tl::reduce_or>((uint32_t*)C, (const uint32_t*)s, 1024);
    tl::bulk_reduce<tl::reduce_max>((int64_t*)C, (const int64_t*)s, 1024);
    tl::bulk_reduce<tl::reduce_add>((int64_t*)C, (const int64_t*)s, 1024);
    tl::bulk_reduce<tl::reduce_xor>((uint64_t*)C, (const uint64_t*)s, 1024);
    tl::bulk_commit();
    tl::bulk_wait_read<1>();
    tl::bulk_wait<0>();
  }
  tl::cp_async<16>(s + 16 * t, C + 4 * t);
  tl::cp_async_mbarrier_arrive(bar);
  tl::mbarrier_arrive(bar);
  tl::mbarrier_arrive(bar, 2);
  while (!tl::mbarrier_test_wait(bar, 0) && !tl::mbarrier_try_wait(bar, 0)) {
  }
  tl::mbarrier_wait(bar, 1);
  tl::fence_proxy_async();
  tl::fence_proxy_async_shared();
  tl::arrive_threads<1, 256>();
  tl::arrive_barrier(2 + t / 128, 256);
  tl::sync_barrier(4 + t / 128, 128);
  C[t] = tl::cluster_load((const float*)s + t, 1) + *tl::cluster_map((float*)s + t, 0);
  tl::cluster_store((float*)s + t, 1, 3.0f);
  float sum[2] = {C[t], C[t + 1]};
  tl::add_remote<2, 4, 2>(sum, (const float*)s + 2 * t, 1);
  C[t] = sum[0] + sum[1];
  if (t < 128) {
    tl::register_limit_decrease<40>();
  } else {
    tl::register_limit_increase<232>();
    uint64_t a = tl::wgmma_descriptor<128>(s, 16, 1024), b = tl::wgmma_descriptor<0>(s + 8192, 128, 256);
    b = tl::wgmma_descriptor_advance(b, 32);
    uint32_t r[4] = {1, 2, 3, 4};
    float d[16];
    uint32_t h[8];
    int i[16];
    tl::wgmma_hold<16>(d);
    tl::wgmma_fence();
    tl::wgmma_m64k16_f32_f16<32>(d, a, b, false);
    tl::wgmma_m64k16_f32_f16<32, tl::mn_major, tl::k_major>(d, a, b);
    tl::wgmma_m64k16_f32_f16_rs<32, tl::mn_major>(d, r, b);
    tl::wgmma_m64k16_f32_bf16<32>(d, a, b);
    tl::wgmma_m64k16_f32_bf16_rs<32>(d, r, b);
    tl::wgmma_m64k16_f16_f16<32>(h, a, b, false);
    tl::wgmma_m64k16_f16_f16_rs<32>(h, r, b);
    tl::wgmma_m64k8_f32_tf32<32>(d, a, b);
    tl::wgmma_m64k8_f32_tf32_rs<32>(d, r, b);
    tl::wgmma_m64k32_f32_e4m3<32>(d, a, b);
    tl::wgmma_m64k32_f32_e4m3_rs<32>(d, r, b);
    tl::wgmma_m64k32_f32_e5m2<32>(d, a, b);
    tl::wgmma_m64k32_f32_e5m2_rs<32>(d, r, b);
    tl::wgmma_m64k32_f32_e4m3_e5m2<32>(d, a, b);
    tl::wgmma_m64k32_f32_e4m3_e5m2_rs<32>(d, r, b);
    tl::wgmma_m64k32_f32_e5m2_e4m3<32>(d, a, b);
    tl::wgmma_m64k32_f32_e5m2_e4m3_rs<32>(d, r, b);
    tl::wgmma_m64k32_f16_e4m3<32>(h, a, b);
    tl::wgmma_m64k32_f16_e4m3_rs<32>(h, r, b);
    tl::wgmma_m64k32_f16_e5m2<32>(h, a, b);
    tl::wgmma_m64k32_f16_e5m2_rs<32>(h, r, b);
    tl::wgmma_m64k32_f16_e4m3_e5m2<32>(h, a, b);
    tl::wgmma_m64k32_f16_e4m3_e5m2_rs<32>(h, r, b);
    tl::wgmma_m64k32_f16_e5m2_e4m3<32>(h, a, b);
    tl::wgmma_m64k32_f16_e5m2_e4m3_rs<32>(h, r, b);
    tl::wgmma_m64k32_s32_s8<32>(i, a, b, false);
    tl::wgmma_m64k32_s32_s8_rs<32>(i, r, b);
    tl::wgmma_m64k32_s32_u8<32>(i, a, b);
    tl::wgmma_m64k32_s32_u8_rs<32>(i, r, b);
    tl::wgmma_m64k32_s32_s8_u8<32>(i, a, b);
    tl::wgmma_m64k32_s32_s8_u8_rs<32>(i, r, b);
    tl::wgmma_m64k32_s32_u8_s8<32>(i, a, b);
    tl::wgmma_m64k32_s32_u8_s8_rs<32>(i, r, b);
    tl::wgmma_commit();
    tl::wgmma_wait<0>();
    C[t] += d[t % 16] + (float)h[t % 8] + (float)i[t % 16];
  }
  if (t == 0) tl::mbarrier_inval(bar);
  tl::cluster_sync();
}
