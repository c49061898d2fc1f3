"""What experts say themselves on sm_90a: mbarriers, bulk copies, fences, warpgroups and their registers (batch 2)."""

import numpy as np

import tilelang.language as T
from surface_cases.case import Program, case, ints

SHAPE = (16, 32)
NO_CPU = {"CPU": "mbarriers and bulk copies are sm_90a's: the CPU target refuses the kernel"}
HOPPER = "sm_90a"


def loads(arrive, expect, wait):
    """A program that loads a tile, with the calls given."""

    @T.prim_func
    def main(A: T.Tensor(SHAPE, "float32"), B: T.Tensor(SHAPE, "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared(SHAPE, "float32")
            full = T.alloc_barrier([1, 32])
            if T.get_thread_binding() == 0:
                expect(full[0], 16 * 32 * 4)
                T.tma_copy(A, tile, barrier=full[0], expect_tx=False)
            wait(full[0], 0)
            arrive(full[1])
            wait(full[1], 0)
            T.copy(tile, B)

    a = ints(*SHAPE, dtype=np.float32)
    return Program(main, [a], [a], arch=HOPPER)


@case("T.alloc_barrier", "T.mbarrier_arrive", "T.mbarrier_arrive_expect_tx", "T.mbarrier_wait_parity", empty=NO_CPU)
def barriers():
    return loads(T.mbarrier_arrive, T.mbarrier_arrive_expect_tx, T.mbarrier_wait_parity)


@case("T.barrier_arrive", "T.barrier_wait", "T.mbarrier_expect_tx", empty=NO_CPU)
def barriers_by_their_other_names():
    def expect_and_arrive(barrier, size):
        T.mbarrier_expect_tx(barrier, size)
        T.barrier_arrive(barrier)

    return loads(T.barrier_arrive, expect_and_arrive, T.barrier_wait)


@case("T.tma_copy", "T.tma_store_wait", "T.fence_proxy_async", empty=NO_CPU)
def a_tile_by_bulk_copies():
    @T.prim_func
    def main(A: T.Tensor(SHAPE, "float32"), B: T.Tensor(SHAPE, "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared(SHAPE, "float32")
            full = T.alloc_barrier(32)
            T.tma_copy(A, tile, barrier=full)
            T.mbarrier_arrive(full)
            T.mbarrier_wait_parity(full, 0)
            for i, j in T.Parallel(*SHAPE):
                tile[i, j] = tile[i, j] + 1
            T.fence_proxy_async()
            T.sync_threads()
            T.tma_copy(tile, B)
            T.tma_store_wait()

    a = ints(*SHAPE, dtype=np.float32)
    return Program(main, [a], [a + np.float32(1)], arch=HOPPER)


@case("T.tma_store_arrive", empty=NO_CPU)
def groups_of_stores():
    @T.prim_func
    def main(A: T.Tensor(SHAPE, "float32"), B: T.Tensor(SHAPE, "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared(SHAPE, "float32")
            T.copy(A, tile)
            T.fence_proxy_async()
            T.sync_threads()
            T.tma_copy(tile, B)
            T.tma_store_arrive()
            T.tma_store_wait(1)
            T.tma_store_wait(0)

    a = ints(*SHAPE, dtype=np.float32)
    return Program(main, [a], [a], arch=HOPPER)


def roles(give, take, hint):
    """A program of two warpgroups that pass a tile on."""

    @T.prim_func
    def main(A: T.Tensor(SHAPE, "float32"), B: T.Tensor(SHAPE, "float32")):
        with T.Kernel(1, threads=256):
            if hint is not None:
                hint()
            tile = T.alloc_shared(SHAPE, "float32")
            full = T.alloc_barrier(128)
            with T.ws(1):
                give()
                T.copy(A, tile)
                T.mbarrier_arrive(full)
            with T.ws(0):
                take()
                T.mbarrier_wait_parity(full, 0)
                T.copy(tile, B)

    a = ints(*SHAPE, dtype=np.float32)
    return Program(main, [a], [a], arch=HOPPER)


@case("T.ws", "T.set_max_nreg", empty=NO_CPU)
def warpgroups():
    return roles(lambda: T.set_max_nreg(24, 0), lambda: T.set_max_nreg(240, 1), None)


@case("T.inc_max_nreg", "T.dec_max_nreg", "T.no_set_max_nreg", empty=NO_CPU)
def registers_of_warpgroups():
    return roles(lambda: T.dec_max_nreg(24), lambda: T.inc_max_nreg(240), T.no_set_max_nreg)


@case(
    "T.annotate_producer_reg_dealloc",
    "T.annotate_consumer_reg_alloc",
    "T.disable_warp_group_reg_alloc",
    empty=NO_CPU,
)
def registers_by_annotations():
    return roles(T.annotate_producer_reg_dealloc, T.annotate_consumer_reg_alloc, T.disable_warp_group_reg_alloc)


NO_CPU_CLUSTERS = {"CPU": "blocks that run together are sm_90a's: the CPU target refuses the kernel"}


def rows_of_neighbours(meet, at_end=lambda: None):
    """A program of clusters of two: each block writes a row, and reads the other's behind a barrier."""

    @T.prim_func
    def main(A: T.Tensor((4, 32), "float32"), S: T.Tensor((4, 32), "float32"), B: T.Tensor((4, 32), "float32")):
        with T.ClusterKernel(4, cluster_dims=2, threads=32) as bx:
            ready = T.alloc_cluster_barrier(32)
            tx = T.get_thread_binding()
            S[bx, tx] = A[bx, tx]
            meet(ready)
            B[bx, tx] = S[bx ^ 1, tx] + T.get_cluster_id() + T.get_block_extents()[0] * T.get_thread_extents()[0]
            at_end()

    a = ints(4, 32, dtype=np.float32)
    want = a[[1, 0, 3, 2]] + np.float32([[0], [0], [1], [1]]) + np.float32(128)
    return Program(main, [a, np.zeros_like(a), np.zeros_like(a)], [want], arch=HOPPER)


@case(
    "T.ClusterKernel",
    "T.cluster_sync",
    "T.get_cluster_id",
    "T.get_block_extents",
    "T.get_thread_extents",
    empty=NO_CPU_CLUSTERS,
)
def clusters():
    return rows_of_neighbours(lambda ready: T.cluster_sync())


@case("T.cluster_arrive", "T.cluster_wait", empty=NO_CPU_CLUSTERS)
def halves_of_a_cluster_barrier():
    def meet(ready):
        T.cluster_arrive()
        T.cluster_wait()

    return rows_of_neighbours(meet)


@case("T.cluster_arrive_relaxed", empty=NO_CPU_CLUSTERS)
def blocks_that_stay_for_each_other():
    def at_end():
        T.cluster_arrive_relaxed()
        T.cluster_wait()

    return rows_of_neighbours(lambda ready: T.cluster_sync(), at_end)


@case("T.alloc_cluster_barrier", "T.mbarrier_arrive(cta_id=)", empty=NO_CPU_CLUSTERS)
def arrivals_at_other_blocks():
    def meet(ready):
        T.mbarrier_arrive(ready, cta_id=T.block_rank_in_cluster() ^ 1)
        T.mbarrier_wait_parity(ready, 0)

    return rows_of_neighbours(meet, T.cluster_sync)


@case("T.sync_grid")
def all_blocks_meet():
    @T.prim_func
    def main(A: T.Tensor((4, 32), "float32"), S: T.Tensor((4, 32), "float32"), B: T.Tensor((4, 32), "float32")):
        with T.Kernel(4, threads=32) as bx:
            tx = T.get_thread_binding()
            S[bx, tx] = A[bx, tx]
            T.sync_grid()
            B[bx, tx] = S[3 - bx, tx] + 1

    a = ints(4, 32, dtype=np.float32)
    return Program(main, [a, np.zeros_like(a), np.zeros_like(a)], [a[::-1] + np.float32(1)])


@case("T.pdl_sync", "T.pdl_trigger")
def launches_that_overlap():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        scratch = T.alloc_global((64,), "float32")
        with T.Kernel(2, threads=32) as bx:
            t = bx * 32 + T.get_thread_binding()
            scratch[t] = A[t] * 2
            T.pdl_trigger()
        with T.Kernel(2, threads=32) as bx:
            t = bx * 32 + T.get_thread_binding()
            T.pdl_sync()
            B[t] = scratch[63 - t] + 1

    a = ints(64, dtype=np.float32)
    return Program(main, [a], [a[::-1] * np.float32(2) + np.float32(1)], arch=HOPPER)


@case("T.wgmma_gemm", "T.wait_wgmma")
def products_that_run_beside_each_other():
    """Two products under way; the first one is waited for by hand, the other one by the compiler."""

    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            d = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.wgmma_gemm(a, b, c, clear_accum=True)
            T.wgmma_gemm(a, b, d, transpose_B=True, clear_accum=True)
            T.wait_wgmma(1)
            T.copy(c, C[0, 0])
            T.wait_wgmma(0)
            T.copy(d, C[64, 0])

    a, b = (ints(64, 64, dtype=np.float16) for _ in range(2))
    wide = np.concatenate([a.astype(np.float32) @ b.astype(np.float32), a.astype(np.float32) @ b.T.astype(np.float32)])
    return Program(main, [a, b], [wide], arch=HOPPER)


@case(
    "T.warpgroup_arrive",
    "T.warpgroup_commit_batch",
    "T.warpgroup_fence_operand",
    "T.warpgroup_wait",
)
def a_product_with_its_fences():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.warpgroup_fence_operand(c)
            T.warpgroup_arrive()
            T.wgmma_gemm(a, b, c, clear_accum=True)
            T.warpgroup_commit_batch()
            T.warpgroup_wait(0)
            T.warpgroup_fence_operand(c)
            T.copy(c, C)

    a, b = (ints(64, 64, dtype=np.float16) for _ in range(2))
    return Program(main, [a, b], [a.astype(np.float32) @ b.astype(np.float32)], arch=HOPPER)


@case("T.cp_async_barrier_noinc", empty=NO_CPU)
def copies_of_threads_that_arrive_when_they_have_landed():
    @T.prim_func
    def main(A: T.Tensor(SHAPE, "float32"), B: T.Tensor(SHAPE, "float32")):
        with T.Kernel(1, threads=256):
            tile = T.alloc_shared(SHAPE, "float32")
            full = T.alloc_barrier(128)
            with T.ws(1):
                T.async_copy(A, tile)
                T.cp_async_barrier_noinc(full)
            with T.ws(0):
                T.mbarrier_wait_parity(full, 0)
                T.copy(tile, B)

    a = ints(*SHAPE, dtype=np.float32)
    return Program(main, [a], [a], arch=HOPPER)


def of_each_thread(compute, want, dtype=np.float32):
    """A program that stores a value of each of 64 threads, of which `compute` gets the thread's own."""

    @T.prim_func
    def main(A: T.Tensor((64,), str(np.dtype(dtype))), B: T.Tensor((64,), str(np.dtype(dtype)))):
        with T.Kernel(1, threads=64):
            t = T.get_thread_binding()
            B[t] = compute(A[t], t)

    a = ints(64, dtype=dtype)
    return Program(main, [a], [want(a, np.arange(64)).astype(dtype)])


@case("T.tvm_warp_shuffle", "T.tvm_warp_shuffle_up", "T.tvm_warp_shuffle_down")
def values_of_other_lanes():
    def compute(x, t):
        up, down = T.tvm_warp_shuffle_up(-1, x, 1, 32, 32), T.tvm_warp_shuffle_down(-1, x, 1, 32, 32)
        return T.tvm_warp_shuffle(0xFFFFFFFF, x, t + 3, 32, 32) + 10 * up + 100 * down

    def want(a, t):
        up, down = np.where(t % 32 > 0, t - 1, t), np.where(t % 32 < 31, t + 1, t)
        return a[t // 32 * 32 + (t + 3) % 32] + 10 * a[up] + 100 * a[down]

    return of_each_thread(compute, want)


@case("T.shfl_sync", "T.shfl_xor", "T.shfl_up", "T.shfl_down")
def values_of_other_lanes_by_their_other_names():
    def compute(x, t):
        return T.shfl_sync(x, 3) + 10 * T.shfl_xor(x, 5) + 100 * T.shfl_up(x, 4, 8) + 1000 * T.shfl_down(x, 4, 8)

    def want(a, t):
        return a[t // 32 * 32 + 3] + 10 * a[t ^ 5] + 100 * a[t // 8 * 8 + t % 4] + 1000 * a[t // 8 * 8 + t % 4 + 4]

    return of_each_thread(compute, want)


@case(
    "T.warp_reduce_sum",
    "T.warp_reduce_max",
    "T.warp_reduce_min",
    "T.warp_reduce_bitand",
    "T.warp_reduce_bitor",
)
def reductions_of_warps():
    def compute(x, t):
        bits = T.warp_reduce_bitand(x | 8) + T.warp_reduce_bitor(x & 6)
        return T.warp_reduce_sum(x) + 1000 * T.warp_reduce_max(x) + 10000 * T.warp_reduce_min(x) + bits

    def want(a, t):
        rows = a.reshape(2, 32)
        bits = np.bitwise_and.reduce(rows | 8, axis=1) + np.bitwise_or.reduce(rows & 6, axis=1)
        return np.repeat(rows.sum(1) + 1000 * rows.max(1) + 10000 * rows.min(1) + bits, 32)

    return of_each_thread(compute, want, np.int32)


@case("T.get_lane_idx", "T.get_warp_idx", "T.get_warp_idx_sync", "T.get_warp_group_idx", "T.shuffle_elect")
def places_in_warps():
    def compute(x, t):
        chosen = T.if_then_else(T.shuffle_elect(8), 500, 0)
        return (
            T.get_lane_idx() + 100 * T.get_warp_idx() + 1000 * T.get_warp_idx_sync(16) + T.get_warp_group_idx() + chosen
        )

    return of_each_thread(
        compute, lambda a, t: t % 32 + 100 * (t // 32) + 1000 * (t // 16) + 500 * (t % 8 == 0), np.int32
    )
