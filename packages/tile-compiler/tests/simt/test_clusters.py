"""`T.Kernel(cluster_dims=)`: tiles that the blocks of a cluster share come once, and every part of how they do is needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from device_texts import lowered
from mutants import mutants, refuted
from panel_kernels import numbers

import tilelang
import tilelang.language as T
from tile_compiler.simt import device_text
from tile_compiler.simt.rasterize_grid import Panels
from tile_runtime_cpu.emulator.report import EmulationError
from tilelang.errors import InvalidThreads

CUDA = "cuda -arch=sm_90a"


def product(M: Any, N: Any, K: Any, dims: Any, panel: int = 0, stages: int = 2) -> Any:
    """C = A B by tiles of 64 x 64 x 32."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 64), T.ceildiv(M, 64), threads=128, cluster_dims=dims) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.use_swizzle(max(panel, 1), enable=panel > 0)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=stages):
                T.copy(A[by * 64, k * 32], a)
                T.copy(B[k * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    return main


def persistent(M: int, N: int, K: int, blocks: int) -> Any:
    """The same by blocks that stay: the two of a cluster take tiles one above the other."""

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(blocks, threads=128, cluster_dims=2) as block:
            a = T.alloc_shared((64, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            for row, bx in T.Persistent([M // 128, N // 64], blocks // 2, block // 2, 2):
                T.clear(c)
                for k in T.Pipelined(K // 32, num_stages=2):
                    T.copy(A[(row * 2 + T.block_rank_in_cluster()) * 64, k * 32], a)
                    T.copy(B[k * 32, bx * 64], b)
                    T.gemm(a, b, c)
                T.copy(c, C[(row * 2 + T.block_rank_in_cluster()) * 64, bx * 64])

    return main


def multiplies(kernel: Any, M: int, N: int, K: int) -> None:
    """On random data, by float64."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((M, K), (K, N)))
    c = np.full((M, N), np.nan, np.float32)
    kernel(a, b, c)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-3, atol=1e-3)


def notes(kernel: Any) -> str:
    return "\n".join(str(n["text"]) for n in kernel.report()["notes"])


def clusters(kernel: Any) -> list[Any]:
    return [launch.cluster for v in kernel.artifact.manifest.variants for launch in v.launches]


@pytest.mark.parametrize(
    ("dims", "panel", "shared"), [((2, 1), 0, "a"), ((1, 2), 3, "b")], ids=["rows of A", "columns of B, in panels"]
)
def test_a_shared_tile_comes_once(dims: Any, panel: int, shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tilelang.compile(product(256, 256, 160, dims, panel), target=CUDA, execution="emulate")
    text = kernel.get_kernel_source()
    assert text.count(f"tl::tma_load_multicast(&{shared}[") == text.count("tma_load_multicast") == 1
    assert f"{shared}: comes once for all 2 blocks of a cluster" in notes(kernel)
    assert clusters(kernel) == [(*dims, 1)]
    assert not kernel.report()["assumed"]
    for mode, seed in (("early", 0), ("late", 1)):
        monkeypatch.setenv("TILELANG_EMULATE_MODE", mode)
        monkeypatch.setenv("TILELANG_EMULATE_SEED", str(seed))
        multiplies(kernel, 256, 256, 160)


def test_blocks_that_stay_share_tiles() -> None:
    kernel = tilelang.compile(persistent(256, 192, 96, 4), target=CUDA, execution="emulate")
    assert "b: comes once for all 2 blocks" in notes(kernel)
    assert not kernel.report()["assumed"]
    multiplies(kernel, 256, 192, 96)


def test_four_blocks_share_a_tile() -> None:
    kernel = tilelang.compile(product(64, 512, 96, 4), target=CUDA, execution="emulate")
    assert "a: comes once for all 4 blocks" in notes(kernel)
    assert not kernel.report()["assumed"]
    multiplies(kernel, 64, 512, 96)


def test_dynamic_sizes_have_clusters_where_the_grid_is_a_multiple() -> None:
    sizes = [T.dynamic(name) for name in "MNK"]
    kernel = tilelang.compile(product(*sizes, (1, 2)), target=CUDA, execution="emulate")
    multiplies(kernel, 256, 64, 64)
    assert clusters(kernel) == [(1, 2, 1)]
    multiplies(kernel, 192, 64, 64)  # three tiles
    multiplies(kernel, 120, 72, 40)
    assert clusters(kernel) == [(1, 2, 1), None]


def sums(parts: int) -> Any:
    """Of columns: part p of C has those of the first 64 + 64 p - 32 less rows, no row if that is negative."""

    @T.prim_func
    def main(A: T.Tensor((128, 64), "float32"), C: T.Tensor((2, parts, 64), "float32"), less: T.int32):
        with T.Kernel(2, threads=128, cluster_dims=2) as block:
            a = T.alloc_shared((32, 64), "float32")
            c = T.alloc_fragment((64,), "float32")
            for part in T.serial(parts):
                T.clear(c)
                for k in T.Pipelined(2 + 2 * part - less, num_stages=2):
                    T.copy(A[k * 32, 0], a)
                    T.reduce_sum(a, c, dim=0, clear=False)
                T.copy(c, C[block, part, :])

    return main


@pytest.mark.parametrize("parts", [1, 2], ids=["one loop", "a loop that is repeated"])
def test_a_shared_tile_of_a_loop_of_negative_extent(parts: int) -> None:
    kernel = tilelang.compile(sums(parts), target=CUDA, execution="emulate")
    assert "a: comes once for all 2 blocks" in notes(kernel)
    a = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32)
    for less in (0, 3, 5):
        c = np.full((2, parts, 64), np.nan, np.float32)
        kernel(a, c, less)
        expected = [a[: 32 * max(2 + 2 * part - less, 0)].sum(0, dtype=np.float64) for part in range(parts)]
        np.testing.assert_allclose(c, [expected] * 2, rtol=1e-4, atol=1e-4)


def own(why: str) -> Any:
    """Kernels in clusters whose blocks cannot share `A`."""

    @T.prim_func
    def main(A: T.Tensor((256, 64), "float16"), C: T.Tensor((256, 64), "float32")):
        with T.Kernel(4, threads=128, cluster_dims=2) as bx:
            a = T.alloc_shared((64, 32), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(bx % 2 + 1 if why == "count" else 2, num_stages=2):
                T.copy(A[(bx if why == "place" else bx // 2) * 64, k * 32], a)
                if why == "changed":
                    for i, j in T.Parallel(64, 32):
                        a[i, j] = a[i, j] * T.float16(2)
                T.gemm(a, a, c, transpose_B=True)
            T.copy(c, C[bx * 64, 0])

    return main


@pytest.mark.parametrize(
    ("why", "said"),
    [
        ("place", "as it hangs on the block's place in its cluster"),
        ("count", "as it hangs on the block's place in its cluster"),
        ("changed", "no copy in it can run ahead"),
        ("", "a: comes once for all 2 blocks of a cluster"),
    ],
)
def test_blocks_share_only_what_is_the_same_in_all_of_them(why: str, said: str) -> None:
    trace, ctx = lowered(own(why), "sm_90a")
    assert said in "\n".join(text for _, text in ctx.report.notes)
    assert ("_multicast" in str(trace.steps[-1].after)) == (not why)


@pytest.mark.parametrize(
    ("arch", "size", "said"),
    [
        ("sm_80", 256, "no clusters: sm_80 has none"),
        ("gfx942", 256, "no clusters: gfx942 has none"),
        ("sm_90a", 192, "no clusters: the grid has 3 blocks along an axis, perhaps no multiple of 2"),
    ],
)
def test_the_report_says_why_there_are_no_clusters(arch: str, size: int, said: str) -> None:
    _, ctx = lowered(product(size, 64, 32, (1, 2)), arch)
    assert said in "\n".join(text for _, text in ctx.report.notes)
    assert not ctx.clusters


@pytest.mark.parametrize("dims", [0, (2, 0), (1, 1, 2), (4, 4), 1.5, (2, 1, 1, 1)])
def test_impossible_clusters_are_refused(dims: Any) -> None:
    with pytest.raises(InvalidThreads, match="cluster_dims= of T.Kernel is impossible"):
        product(256, 256, 32, dims)


def test_panels_keep_the_blocks_of_a_cluster_together() -> None:
    for dims in ((2, 1), (1, 2)):
        for order in ("row", "column"):
            found = numbers(4, 6, Panels(2, order), dims).reshape(6, 4, 2)  # by row and column of the hardware's grid
            assert len({tuple(n) for n in found.reshape(-1, 2).tolist()}) == 24
            for y in range(0, 6, dims[1]):
                for x in range(0, 4, dims[0]):
                    other = found[y + dims[1] - 1, x + dims[0] - 1]
                    assert (other - found[y, x]).tolist() == [dims[0] - 1, dims[1] - 1]
                    assert found[y, x, 0] % dims[0] == found[y, x, 1] % dims[1] == 0


def test_the_checker_needs_every_part() -> None:
    trace, ctx = lowered(product(128, 64, 160, (1, 2)), "sm_90a")
    func = next(s.after for s in trace.steps if s.name == "check_synchronization")
    assert not refuted(func, ctx)
    spared = [change.was for mutant, change in mutants(func) if not refuted(mutant, ctx)]
    assert spared == [
        "tl::mbarrier_wait"
    ]  # of the waits at the end, that for the slot before the last: both come in order


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("if (tx % 32 < 2) {", "if (tx % 32 < 1) {", "deadlock"),
        (
            "arrive_cluster_reads(&a_b_empty[(k - 1) & 1], tx % 32)",
            "arrive(&a_b_empty[(k - 1) & 1])",
            "write-under-async",
        ),
        ("tl::cluster_sync();", "tl::sync_threads();", "mbarrier-not-initialized"),
        ("tl::mbarrier_wait(a_b_empty, 0);", "", "block-has-ended"),
    ],
    ids=["some arrivals", "arrivals at home", "first barrier", "last wait"],
)
def test_the_emulator_finds_what_is_missing(old: str, new: str, found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the checker proves, in another way: the text with one thing wrong."""
    right = device_text.device_text

    def wrong(*args: Any) -> Any:
        text, members = right(*args)
        assert old in text
        changed = [(n, k, d.replace(old.encode(), new.encode()) if k == "source" else d) for n, k, d in members]
        return text.replace(old, new), changed

    monkeypatch.setenv("TILELANG_DISABLE_CACHE", "1")  # equal kernels would be equal artifacts
    monkeypatch.setattr(device_text, "device_text", wrong)
    kernel = tilelang.compile(product(128, 64, 160, (1, 2)), target=CUDA, execution="emulate")
    with pytest.raises(EmulationError, match=found):
        multiplies(kernel, 128, 64, 160)
