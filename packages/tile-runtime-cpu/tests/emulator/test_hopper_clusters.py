"""Blocks of a cluster, each function alone with distinct values: shared memory of other blocks, multicast, arrivals, and
what a warp or a launch has besides (PTX ISA, "Cluster", "elect.sync", "griddepcontrol", "setmaxnreg").
"""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(params=["early", "late"])
def both_modes(request):
    """Copies that end early and late."""
    return request.param


def test_one_lane_is_elected(run_body, both_modes):
    y = np.zeros(96, "i4")
    run_body("int* O", "O[threadIdx.x] = tl::elect_one();", [y], 96, mode=both_modes).check()
    np.testing.assert_array_equal(y.reshape(3, 32).sum(1), 1)


def test_a_cluster_exchanges_shared_memory(run_body, both_modes):
    """Loads, stores, bulk copies and multicast between the four blocks of a cluster."""
    x, y = np.arange(64, dtype="i4") + 1, np.zeros((8, 5, 32), "i4")
    body = """
      int* s = (int*)tl::shared_memory();
      uint64_t* bar = (uint64_t*)(s + 256);
      int rank = tl::cluster_rank(), count = tl::cluster_size(), t = threadIdx.x;
      int* to = O + blockIdx.x * 160 + t;
      s[t] = blockIdx.x * 100 + t;
      if (t == 0) {
        tl::mbarrier_init(bar, 1);
        tl::mbarrier_init(bar + 1, 1);
        tl::fence_mbarrier_init();
        tl::mbarrier_arrive_expect_tx(bar, 128);
        tl::mbarrier_arrive_expect_tx(bar + 1, 256);
      }
      tl::fence_proxy_async();
      tl::cluster_arrive();
      tl::cluster_wait();
      to[0] = tl::cluster_load(s + t, (rank + 1) % count);
      tl::cluster_store(s + 32 + t, (rank + 2) % count, rank * 1000 + t);
      if (t == 0) tl::bulk_copy_cluster(s + 64, s, 128, bar, (rank + 3) % count);
      if (t == 0 && rank == 2) tl::bulk_load_multicast(s + 128, X, 256, bar + 1, 15);
      tl::mbarrier_wait(bar, 0);
      tl::mbarrier_wait(bar + 1, 0);
      tl::cluster_sync();
      to[32] = s[32 + t];
      to[64] = s[64 + t];
      to[96] = s[128 + t] + s[160 + t];
      to[128] = *tl::cluster_map(s + t, 0) + count;"""
    body += "\n      tl::cluster_sync();"
    buffers = [(x.ctypes.data, x.nbytes, "X", False), (y.ctypes.data, y.nbytes, "O", True, False)]
    run_body("const int* X, int* O", body, [x, y], grid=(8,), cluster=(4,), buffers=buffers, mode=both_modes).check()
    t = np.arange(32)
    for block in range(8):
        rank, first = block % 4, block // 4 * 4
        np.testing.assert_array_equal(y[block, 0], (first + (rank + 1) % 4) * 100 + t)
        np.testing.assert_array_equal(y[block, 1], (rank + 2) % 4 * 1000 + t)
        np.testing.assert_array_equal(y[block, 2], (first + (rank + 1) % 4) * 100 + t)
        np.testing.assert_array_equal(y[block, 3], x[:32] + x[32:])
        np.testing.assert_array_equal(y[block, 4], first * 100 + t + 4)


def test_elements_of_another_block_are_added(run_body, both_modes):
    """Six registers and, two by two, elements 0, 1, 8, 9, 16, 17 from the thread's place on."""
    y = np.zeros((2, 4, 6), "i4")
    body = """
      int* s = (int*)tl::shared_memory();
      const int rank = tl::cluster_rank(), t = threadIdx.x;
      for (int i = 0; i < 6; ++i) s[t * 6 + i] = rank * 1000 + t * 6 + i;
      int c[6] = {100000, 200000, 300000, 400000, 500000, 600000};
      tl::cluster_sync();
      tl::add_remote<6, 8, 2>(c, s + t * 2, 1 - rank);
      tl::cluster_sync();
      for (int i = 0; i < 6; ++i) O[blockIdx.x * 24 + t * 6 + i] = c[i];"""
    run_body("int* O", body, [y], 4, grid=(2,), cluster=(2,), mode=both_modes).check()
    element = 2 * np.arange(4)[:, None] + np.asarray([0, 1, 8, 9, 16, 17])
    before = 100000 * (1 + np.arange(6))
    np.testing.assert_array_equal(y, [before + 1000 + element, before + element])


def test_waits_for_what_other_blocks_wrote(run_body, both_modes):
    """To global memory: behind arrivals of another block of the cluster, by both kinds of waits."""
    x, y = np.zeros((2, 2, 32), "i4"), np.zeros((2, 2, 32), "i4")
    body = """
      uint64_t* bar = (uint64_t*)tl::shared_memory();
      const int other = tl::cluster_rank() ^ 1, t = threadIdx.x;
      if (t == 0) {
        tl::mbarrier_init(bar, 32);
        tl::mbarrier_init(bar + 1, 32);
        tl::fence_mbarrier_init();
      }
      tl::cluster_sync();
      X[blockIdx.x * 64 + t] = blockIdx.x * 100 + t + 1;
      tl::mbarrier_arrive_cluster(bar, other);
      tl::mbarrier_wait_others(bar, 0);
      O[blockIdx.x * 64 + t] = X[other * 64 + 31 - t];
      X[blockIdx.x * 64 + 32 + t] = blockIdx.x * 1000 + t + 1;
      tl::mbarrier_arrive_cluster(bar + 1, other);
      while (!tl::mbarrier_try_wait_others(bar + 1, 0)) {
      }
      O[blockIdx.x * 64 + 32 + t] = X[other * 64 + 63 - t];
      tl::cluster_sync();"""
    buffers = [(a.ctypes.data, a.nbytes, name, True, False) for a, name in ((x, "X"), (y, "O"))]
    run_body("int* X, int* O", body, [x, y], grid=(2,), cluster=(2,), buffers=buffers, mode=both_modes).check()
    t = np.arange(31, -1, -1) + 1
    for block in range(2):
        np.testing.assert_array_equal(y[block], [(1 - block) * 100 + t, (1 - block) * 1000 + t])


def test_all_blocks_of_a_launch_meet(run_body, both_modes):
    """Twice, in blocks of two warps; the counter tells how many blocks have come."""
    x, y, arrived = np.zeros((4, 64), "i4"), np.zeros((4, 64), "i4"), np.zeros(1, "u4")
    body = """
      const int t = threadIdx.x, other = 3 - blockIdx.x;
      X[blockIdx.x * 64 + t] = blockIdx.x * 100 + t + 1;
      tl::sync_grid(arrived);
      O[blockIdx.x * 64 + t] = X[other * 64 + 63 - t];
      tl::sync_grid(arrived);
      X[other * 64 + t] = O[blockIdx.x * 64 + t] * 2;"""
    run_body(
        "int* X, int* O, uint32_t* arrived", body, [x, y, arrived], 64, grid=(4,), cluster=(4,), mode=both_modes
    ).check()
    want = np.arange(3, -1, -1)[:, None] * 100 + np.arange(63, -1, -1) + 1
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(x, 2 * want[::-1])
    assert arrived[0] == 8


def test_arrivals_from_other_blocks_of_a_cluster(run_body, both_modes):
    y = np.zeros((2, 32), "i4")
    body = """
      int* s = (int*)tl::shared_memory();
      uint64_t* bar = (uint64_t*)(s + 64);
      uint32_t other = tl::cluster_rank() ^ 1;
      if (threadIdx.x == 0) {
        tl::mbarrier_init(bar, 34);
        tl::fence_mbarrier_init();
      }
      tl::cluster_sync();
      tl::cluster_store(s + threadIdx.x, other, (int)(blockIdx.x * 100 + threadIdx.x));
      tl::mbarrier_arrive_cluster(bar, other);
      if (threadIdx.x == 0) tl::mbarrier_arrive_cluster(bar, other, 2);
      tl::mbarrier_wait(bar, 0);
      O[blockIdx.x * 32 + threadIdx.x] = s[31 - threadIdx.x];
      tl::cluster_arrive_relaxed();
      tl::cluster_wait();"""
    buffers = [(y.ctypes.data, y.nbytes, "O", True, False)]
    run_body("int* O", body, [y], grid=(2,), cluster=(2,), buffers=buffers, mode=both_modes).check()
    np.testing.assert_array_equal(y, [np.arange(131, 99, -1), np.arange(31, -1, -1)])


@pytest.mark.parametrize(
    ("rank", "hint"), [(1, ""), (2, "<tl::evict_first>"), (3, "<tl::evict_last>"), (4, ""), (5, "<tl::evict_first>")]
)
def test_a_box_for_several_blocks(run_body, tensor_map, both_modes, rank, hint):
    """Each of two blocks loads half of the tile for both, to the same place in each and with the same barrier's count."""
    shape = (3, 2, 2, 2, 96)[5 - rank :]
    x, y = np.arange(np.prod(shape), dtype="i4").reshape(shape), np.zeros((2, 64), "i4")
    box = (32, *(1 for _ in shape[1:]))
    last = ", ".join(["16 + 32 * rank", *("1" for _ in shape[1:])])
    body = f"""
      int* s = (int*)tl::shared_memory();
      uint64_t* bar = (uint64_t*)(s + 64);
      const int rank = tl::cluster_rank(), t = threadIdx.x;
      if (t == 0) {{
        tl::prefetch_tensor_map(&X);
        tl::tma_prefetch(&X, {last});
        tl::mbarrier_init(bar, 1);
        tl::fence_mbarrier_init();
        tl::mbarrier_arrive_expect_tx(bar, 256);
      }}
      tl::cluster_sync();
      if (t == 0) tl::tma_load_multicast{hint}(s + 32 * rank, &X, bar, 3, {last});
      tl::mbarrier_wait(bar, 0);
      O[blockIdx.x * 64 + t] = s[t];
      O[blockIdx.x * 64 + 32 + t] = s[32 + t];
      tl::cluster_sync();"""
    buffers = [(x.ctypes.data, x.nbytes, "X", False), (y.ctypes.data, y.nbytes, "O", True, False)]
    parameters = "const __grid_constant__ tl::tensor_map X, int* O"
    args = [tensor_map(x, box), y]
    run_body(parameters, body, args, grid=(2,), cluster=(2,), buffers=buffers, mode=both_modes).check()
    row = x[(1,) * (rank - 1)]
    np.testing.assert_array_equal(y, [row[16:80], row[16:80]])


@pytest.mark.parametrize("hint", ["tl::evict_first", "tl::evict_last"])
def test_boxes_with_a_hint_for_the_caches(run_body, tensor_map, both_modes, hint):
    x, y = np.arange(64, dtype="i4"), np.zeros(64, "i4")
    body = f"""
      int* s = (int*)tl::shared_memory();
      uint64_t* bar = (uint64_t*)(s + 64);
      if (threadIdx.x == 0) {{
        tl::mbarrier_init(bar, 1);
        tl::fence_mbarrier_init();
        tl::mbarrier_arrive_expect_tx(bar, 128);
        tl::tma_load<{hint}>(s, &X, bar, 32);
        tl::mbarrier_wait(bar, 0);
        tl::tma_store<{hint}>(&O, s, 16);
        tl::bulk_commit();
        tl::bulk_wait<0>();
      }}"""
    buffers = [(x.ctypes.data, x.nbytes, "X", False), (y.ctypes.data, y.nbytes, "O", True)]
    parameters = "const __grid_constant__ tl::tensor_map X, const __grid_constant__ tl::tensor_map O"
    args = [tensor_map(x, (32,)), tensor_map(y, (32,))]
    run_body(parameters, body, args, buffers=buffers, mode=both_modes).check()
    np.testing.assert_array_equal(y, np.concatenate([np.zeros(16), x[32:], np.zeros(16)]))


def test_bytes_that_another_block_announces(run_body, both_modes):
    """A block tells the next one's barrier how many bytes to wait for, and sends them; reads are told of by an arrival."""
    y = np.zeros((4, 32), "i4")
    body = """
      int* s = (int*)tl::shared_memory();
      uint64_t* bar = (uint64_t*)(s + 64);
      const int t = threadIdx.x, next = (tl::cluster_rank() + 1) % tl::cluster_size();
      s[t] = blockIdx.x * 100 + t;
      if (t == 0) {
        tl::mbarrier_init(bar, 1);
        tl::mbarrier_init(bar + 1, 32);
        tl::fence_mbarrier_init();
      }
      tl::fence_proxy_async();
      tl::cluster_sync();
      if (t == 0) {
        tl::mbarrier_arrive_expect_tx_cluster(bar, next, 128);
        tl::bulk_copy_cluster(s + 32, s, 128, bar, next);
      }
      tl::mbarrier_wait(bar, 0);
      O[blockIdx.x * 32 + t] = s[32 + t];
      tl::mbarrier_arrive_cluster_reads(bar + 1, (next + 2) % 4);
      tl::mbarrier_wait(bar + 1, 0);
      tl::cluster_sync();"""
    buffers = [(y.ctypes.data, y.nbytes, "O", True, False)]
    run_body("int* O", body, [y], grid=(4,), cluster=(4,), buffers=buffers, mode=both_modes).check()
    np.testing.assert_array_equal(y, np.roll(np.arange(4), 1)[:, None] * 100 + np.arange(32))


def test_registers_move_between_warpgroups(run_body):
    y = np.zeros(256, "i4")
    body = """
      int t = threadIdx.x;
      if (t < 128) {
        tl::register_limit_decrease<40>();
        O[t] = 3 * t;
      } else {
        tl::register_limit_increase<160>();
        O[t] = 5 * t;
      }"""
    run_body("int* O", body, [y], 256).check()
    t = np.arange(256)
    np.testing.assert_array_equal(y, np.where(t < 128, 3 * t, 5 * t))


def test_dependent_launches(run_body):
    y = np.zeros(32, "i4")
    body = "tl::grid_dependency_wait(); O[threadIdx.x] = threadIdx.x + 1; tl::grid_dependency_launch();"
    run_body("int* O", body, [y]).check()
    np.testing.assert_array_equal(y, np.arange(32) + 1)


@pytest.mark.parametrize("hint", ["tl::evict_first", "tl::evict_last"])
@pytest.mark.parametrize(("c_type", "words"), [("float", 1), ("double", 2), ("tl::vec<float, 4>", 4)])
def test_loads_with_a_hint_for_the_caches(run_body, watched, c_type, words, hint):
    """Nothing is read where not valid: those lanes are given an address outside of the tensor."""
    x, y = np.arange(1, 32 * words + 1).astype("f4"), np.full(32 * words, -1, "f4")
    body = f"""
      typedef {c_type} T;
      const bool valid = threadIdx.x % 3 != 0;
      ((T*)O)[threadIdx.x] = tl::load<{hint}>((const T*)X + (valid ? threadIdx.x : 1 << 20), valid);"""
    run_body("const float* X, float* O", body, [x, y], buffers=watched(X=x, O=y)).check()
    np.testing.assert_array_equal(y.reshape(32, words), x.reshape(32, words) * (np.arange(32) % 3 != 0)[:, None])
