"""Barriers between blocks in generated text: what they order, and which targets and grids have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_compiler.errors import UnsupportedOnTarget
from tile_runtime_cpu import emulator
from tile_runtime_cpu.emulator.report import EmulationError

HOPPER = "cuda -arch=sm_90a"
BLOCKS, THREADS = 4, 64


def passed_on(across: Any, blocks: Any = BLOCKS) -> Any:
    """Each block writes a row; behind `across` it reads that of its neighbour in the cluster."""

    @T.prim_func
    def main(A: T.Tensor((blocks, THREADS), "float32"), S: T.Tensor((blocks, THREADS), "float32"),
             B: T.Tensor((blocks, THREADS), "float32")):  # fmt: skip
        with T.ClusterKernel(blocks, cluster_dims=2, threads=THREADS) as bx:
            tx = T.get_thread_binding()
            ready = T.alloc_cluster_barrier(THREADS)
            S[bx, tx] = A[bx, tx] * 2
            across(ready)
            B[bx, tx] = S[bx ^ 1, THREADS - 1 - tx] + T.get_cluster_id()
            if across is arrivals:  # a block stays until nobody arrives at its barrier any more
                T.cluster_sync()

    return main


def sync(ready: Any) -> None:
    T.cluster_sync()


def halves(ready: Any) -> None:
    T.cluster_arrive()
    T.cluster_wait()


def arrivals(ready: Any) -> None:
    T.mbarrier_arrive(ready, cta_id=T.block_rank_in_cluster() ^ 1)
    T.mbarrier_wait_parity(ready, 0)


def data() -> tuple[list[Any], Any]:
    a = np.random.default_rng(0).standard_normal((BLOCKS, THREADS)).astype(np.float32)
    want = np.stack([2 * a[n ^ 1, ::-1] + n // 2 for n in range(BLOCKS)]).astype(np.float32)
    return [a, np.zeros_like(a), np.zeros_like(a)], want


def compiled(func: Any, target: str = HOPPER, execution: str = "emulate") -> Any:
    return tilelang.compile(func, target=target, execution=execution)


@pytest.mark.parametrize("across", [sync, halves, arrivals])
def test_what_others_wrote_is_there_behind_a_barrier(across):
    arrays, want = data()
    kernel = compiled(passed_on(across))
    kernel(*arrays)
    np.testing.assert_array_equal(arrays[2], want)
    assert [tuple(n.cluster) for v in kernel.artifact.manifest.variants for n in v.launches] == [(2, 1, 1)]


@pytest.mark.parametrize(
    ("across", "change"),
    [
        (sync, ("tl::cluster_sync();\n  B", "B")),
        (halves, ("tl::cluster_wait();", "")),
        (halves, ("cluster_arrive()", "cluster_arrive_relaxed()")),
        (arrivals, ("(bx & 1) ^ 1", "bx & 1")),
    ],
)
def test_every_part_of_a_barrier_is_needed(across, change):
    """Without it some seed shows a race between the blocks, or a barrier that one of them misses."""
    text = compiled(passed_on(across)).get_kernel_source()
    assert change[0] in text
    wrong = emulator.compile(text.replace(*change))
    found: set[str] = set()
    for seed in range(4):
        arrays, _ = data()
        report = wrong.launch("main_kernel", (BLOCKS, 1, 1), (THREADS, 1, 1), 64, arrays, seed=seed, cluster=(2, 1, 1))
        found |= {e.kind for e in report.errors}
    assert found & {"race-read-after-write", "race-write-after-read", "barrier-misuse", "deadlock"}, found


@pytest.mark.parametrize("func", [passed_on(sync), passed_on(halves), passed_on(arrivals)])
def test_pointers_that_others_write_through_are_not_restricted(func):
    """Else the device's compiler may read before a wait what the kernel reads behind it."""
    assert "__restrict__" not in compiled(func).get_kernel_source()


def test_a_block_that_leaves_before_others_have_arrived_at_its_barrier():
    def arrivals_alone(ready: Any) -> None:
        T.mbarrier_arrive(ready, cta_id=T.block_rank_in_cluster() ^ 1)

    with pytest.raises(tilelang.errors.TileLangError, match="cluster_sync"):
        compiled(passed_on(arrivals_alone))


@pytest.mark.parametrize(
    ("across", "target"),
    [(sync, "cpu"), (sync, "cuda -arch=sm_80"), (sync, "hip -mcpu=gfx942"), (arrivals, "cuda -arch=sm_80")],
)
def test_targets_without_clusters(across, target):
    with pytest.raises(UnsupportedOnTarget, match="sm_90a"):
        compiled(passed_on(across), target, "device" if target == "cpu" else "emulate")


def test_a_grid_that_is_no_multiple_of_the_cluster():
    with pytest.raises(UnsupportedOnTarget, match=r"(?s)T.cluster_sync, and the kernel has no clusters.*5 blocks"):
        compiled(passed_on(sync, 5))


def test_data_of_the_block_needs_no_second_barrier():
    """A barrier of the cluster is one of the block too."""

    @T.prim_func
    def main(A: T.Tensor((BLOCKS, THREADS), "float32"), B: T.Tensor((BLOCKS, THREADS), "float32")):
        with T.ClusterKernel(BLOCKS, cluster_dims=2, threads=THREADS) as bx:
            tx = T.get_thread_binding()
            row = T.alloc_shared((THREADS,), "float32")
            row[tx] = A[bx, tx]
            T.cluster_sync()
            B[bx, tx] = row[THREADS - 1 - tx]

    kernel = compiled(main)
    assert "sync_threads" not in kernel.get_kernel_source()
    (a, b, _), _ = data()
    kernel(a, b)
    np.testing.assert_array_equal(b, a[:, ::-1])


@pytest.mark.parametrize("behind", [True, False])
def test_a_producer_does_not_come_to_a_barrier_behind_its_work(behind):
    """A barrier of the cluster that stands in front of a tile would wait for the producer, which waits for nobody."""

    @T.prim_func
    def main(A: T.Tensor((2, 256, 64), "float16"), S: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.ClusterKernel(2, cluster_dims=2, threads=128) as bx:
            tile = T.alloc_shared((64, 64), "float16")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            if not behind:
                T.cluster_sync()
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[bx, k * 64, 0], tile)
                T.reduce_sum(tile, total, dim=0, clear=False)
            T.copy(total, S[bx, 0])
            if behind:
                T.cluster_sync()
            for i in T.Parallel(64):
                B[bx, i] = S[1 - bx if behind else bx, i]

    kernel = compiled(main)
    a = np.random.default_rng(0).standard_normal((2, 256, 64)).astype(np.float16)
    s, b = np.zeros((2, 64), np.float32), np.zeros((2, 64), np.float32)
    kernel(a, s, b)
    want = a.astype(np.float64).sum(1)
    np.testing.assert_allclose(b, want[::-1] if behind else want, rtol=1e-3, atol=1e-2)
    report = kernel.report()
    assert ("one of 32 more brings tiles" if behind else "no producer warp") in str(report["notes"])
    assert "barriers" not in str(report["assumed"])


@pytest.mark.parametrize("across", [sync, halves, arrivals])
def test_the_text_compiles_for_the_device(across):
    compiled(passed_on(across), execution="device")


def test_emulation_errors_name_the_line():
    """A barrier that the blocks of a cluster come to differently often."""

    @T.prim_func
    def main(A: T.Tensor((BLOCKS, THREADS), "float32")):
        with T.ClusterKernel(BLOCKS, cluster_dims=2, threads=THREADS) as bx:
            for _ in T.serial(bx):
                T.cluster_arrive()
            A[bx, T.get_thread_binding()] = 1

    with pytest.raises(EmulationError, match="cluster_arrive"):
        compiled(main)(np.zeros((BLOCKS, THREADS), np.float32))


# -- the grid -----------------------------------------------------------------------------------------------------------


def by_phases(blocks: Any = BLOCKS, threads: int = THREADS) -> Any:
    """Two barriers of the grid, between which every block reads what the last one has written."""

    @T.prim_func
    def main(A: T.Tensor((blocks, threads), "float32"), S: T.Tensor((blocks, threads), "float32"),
             B: T.Tensor((blocks, threads), "float32")):  # fmt: skip
        with T.Kernel(blocks, threads=threads) as bx:
            tx = T.get_thread_binding()
            other = blocks - 1 - bx
            S[bx, tx] = A[bx, tx] * 2
            T.sync_grid()
            B[bx, tx] = S[other, threads - 1 - tx] + 1
            T.sync_grid()
            S[other, tx] = B[bx, tx] * 2

    return main


def check_phases(kernel: Any, blocks: int = BLOCKS) -> None:
    a = np.random.default_rng(0).standard_normal((blocks, THREADS)).astype(np.float32)
    s, b = np.zeros_like(a), np.zeros_like(a)
    kernel(a, s, b)
    np.testing.assert_array_equal(b, 2 * a[::-1, ::-1] + 1)
    np.testing.assert_array_equal(s, 2 * b[::-1])


@pytest.mark.parametrize(
    ("target", "launches"), [("cuda -arch=sm_80", 1), (HOPPER, 1), ("hip -mcpu=gfx942", 3), ("cpu", 3)]
)
def test_all_blocks_meet(target, launches):
    """CUDA waits inside of one cooperative launch; elsewhere each part of the kernel is a launch of its own."""
    kernel = compiled(by_phases(), target, "device" if target == "cpu" else "emulate")
    check_phases(kernel)
    for variant in kernel.artifact.manifest.variants:
        assert [n.cooperative for n in variant.launches] == [launches == 1] * launches
    assert [w.zero for w in kernel.artifact.manifest.workspace] == [True] * (launches == 1)


def test_any_number_of_blocks():
    kernel = compiled(by_phases(T.dynamic("n")), "cuda -arch=sm_80")
    check_phases(kernel, 3)
    check_phases(kernel, 6)


def test_without_the_barrier_of_the_grid_blocks_race():
    text = compiled(by_phases(), "cuda -arch=sm_80").get_kernel_source()
    for number in range(2):
        call = "tl::sync_grid(arrived);"
        start, middle, end = text.split(call)
        wrong = start + middle + call + end if number == 0 else start + call + middle + end
        arrays, _ = data()
        counter = np.zeros(1, np.uint32)
        module = emulator.compile(wrong)
        report = module.launch(
            "main_kernel", (BLOCKS, 1, 1), (THREADS, 1, 1), 0, [*arrays, counter], seed=1, cluster=(BLOCKS, 1, 1)
        )
        assert {e.kind for e in report.errors} & {"race-read-after-write", "race-write-after-read"}


def test_what_a_bulk_store_writes_is_there_behind_a_barrier():
    """A barrier between blocks waits for the stores, whose tiles alone T.tma_store_wait waits for."""

    @T.prim_func
    def main(A: T.Tensor((2, 64), "float32"), S: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.ClusterKernel(2, cluster_dims=2, threads=32) as bx:
            tile = T.alloc_shared((1, 64), "float32")
            T.copy(A[bx : bx + 1, :], tile)
            T.fence_proxy_async()
            T.sync_threads()
            T.tma_copy(tile, S[bx : bx + 1, :])
            T.cluster_sync()
            for i in T.Parallel(64):
                B[bx, i] = S[1 - bx, i] + 1

    kernel = compiled(main)
    text = kernel.get_kernel_source()
    assert text.index("tma_store") < text.index("tl::bulk_wait<0>") < text.rindex("tl::cluster_sync")
    a = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    s, b = np.zeros_like(a), np.zeros_like(a)
    kernel(a, s, b)
    np.testing.assert_array_equal(b, a[::-1] + 1)


def test_a_grid_that_cannot_run_at_once():
    found = r"(?s)grid of 5000 blocks, which cannot all run at once on sm_80.*108 multiprocessors of the A100"
    with pytest.raises(UnsupportedOnTarget, match=found):
        compiled(by_phases(5000), "cuda -arch=sm_80")


def test_the_barrier_of_the_grid_compiles_for_the_device():
    compiled(by_phases(), "cuda -arch=sm_80", "device")
    compiled(by_phases(), HOPPER, "device")


def test_clusters_of_a_kernel_whose_grid_meets():
    """As a hint they are left out; a kernel that needs them is refused."""

    def both(ready: Any) -> None:
        T.cluster_sync()
        T.sync_grid()

    with pytest.raises(UnsupportedOnTarget, match="all blocks of the grid meet"):
        compiled(passed_on(both))


@T.macro
def in_a_loop(S: Any, bx: Any) -> None:
    for k in T.serial(3):
        S[bx] = k
        T.sync_grid()


@T.macro
def on_chip(S: Any, bx: Any) -> None:
    kept = T.alloc_shared((1,), "float32")
    kept[0] = S[bx]
    T.sync_grid()
    S[bx] = kept[0]


@T.macro
def from_memory(S: Any, bx: Any) -> None:
    kept = S[bx] * 2
    T.sync_grid()
    S[bx] = kept


@pytest.mark.parametrize(
    ("body", "why"), [(in_a_loop, "inside of a loop"), (on_chip, "kept is used"), (from_memory, "kept is used")]
)
def test_what_cannot_be_cut(body, why):
    """It runs on CUDA, and in the interpreter."""

    @T.prim_func
    def main(S: T.Tensor((4,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            body(S, bx)

    for target in ("cpu", "hip -mcpu=gfx942"):
        with pytest.raises(UnsupportedOnTarget, match=rf"(?s){why}.*test_across_blocks\.py"):
            compiled(main, target, "device" if target == "cpu" else "emulate")
    got, want = np.ones(4, np.float32), np.ones(4, np.float32)
    compiled(main, "cuda -arch=sm_80")(got)
    compiled(main, "cpu", "interpret")(want)
    np.testing.assert_array_equal(got, want)


# -- launches that overlap ----------------------------------------------------------------------------------------------


def two_launches() -> Any:
    """The second kernel reads what the first one wrote, behind T.pdl_sync."""

    @T.prim_func
    def main(
        A: T.Tensor((2, 256, 64), "float16"), S: T.Tensor((2, 256, 64), "float16"), B: T.Tensor((2, 64), "float32")
    ):
        with T.Kernel(2, threads=128) as bx:
            T.pdl_trigger()
            for i, j in T.Parallel(256, 64):
                S[bx, i, j] = A[bx, i, j] * 2
        with T.Kernel(2, threads=128) as bx:
            tile = T.alloc_shared((64, 64), "float16")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            T.pdl_sync()
            for k in T.Pipelined(4, num_stages=2):
                T.copy(S[1 - bx, k * 64, 0], tile)
                T.reduce_sum(tile, total, dim=0, clear=False)
            T.copy(total, B[bx, 0])

    return main


@pytest.mark.parametrize(("target", "overlap"), [(HOPPER, True), ("cuda -arch=sm_80", False), ("cpu", False)])
def test_a_launch_that_begins_early_waits(target, overlap):
    """Nothing of it runs ahead of the wait: a producer warp waits too. Targets without such launches leave both calls out."""
    kernel = compiled(two_launches(), target, "device" if target == "cpu" else "emulate")
    a = np.random.default_rng(0).standard_normal((2, 256, 64)).astype(np.float16)
    s, b = np.zeros_like(a), np.zeros((2, 64), np.float32)
    kernel(a, s, b)
    np.testing.assert_allclose(b, 2 * a[::-1].astype(np.float64).sum(1), rtol=1e-3, atol=2e-2)
    for variant in kernel.artifact.manifest.variants:
        assert [n.pdl for n in variant.launches] == [False, overlap]
    text = kernel.get_kernel_source()
    assert ("grid_dependency_launch" in text) == ("grid_dependency_wait" in text) == overlap
    if target != "cpu":  # not of what an earlier launch may still write
        assert text.count("__restrict__") == (2 if overlap else 4)
    if overlap:
        assert "one of 32 more brings tiles" in str(kernel.report()["notes"])
        second = text[text.index("main_kernel_1(") :]
        consumers, waited, loads = second.split("tl::grid_dependency_wait")
        assert "total[" in waited
        assert "tl::tma_load" in loads
        assert not any(word in consumers + waited for word in ("S[", "tl::tma_load", "cp_async"))
        compiled(two_launches(), HOPPER, "device")


def test_no_producer_where_a_wait_for_earlier_launches_is_conditional():
    @T.prim_func
    def main(A: T.Tensor((256, 64), "float16"), B: T.Tensor((64,), "float32"), early: T.int32):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((64, 64), "float16")
            total = T.alloc_fragment((64,), "float32")
            T.clear(total)
            if early > 0:
                T.pdl_sync()
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 64, 0], tile)
                T.reduce_sum(tile, total, dim=0, clear=False)
            T.copy(total, B)

    assert "no producer warp: all threads come to T.pdl_sync" in str(compiled(main).report()["notes"])


def test_warpgroups_wait_for_warpgroups_of_other_blocks():
    @T.prim_func
    def main(A: T.Tensor((4, 128), "float32"), S: T.Tensor((4, 128), "float32"), B: T.Tensor((4, 128), "float32")):
        with T.ClusterKernel(4, cluster_dims=2, threads=256) as bx:
            ready = T.alloc_cluster_barrier(128)
            with T.ws(1):
                T.mbarrier_wait_parity(ready, 0)
                for i in T.Parallel(128):
                    B[bx, i] = S[bx ^ 1, i] + 1
            with T.ws(0):
                for i in T.Parallel(128):
                    S[bx, i] = A[bx, i] * 2
                T.mbarrier_arrive(ready, cta_id=T.block_rank_in_cluster() ^ 1)
            T.cluster_sync()

    a = np.random.default_rng(0).standard_normal((4, 128)).astype(np.float32)
    s, b = np.zeros_like(a), np.zeros_like(a)
    compiled(main)(a, s, b)
    np.testing.assert_array_equal(b, 2 * a[[1, 0, 3, 2]] + 1)
