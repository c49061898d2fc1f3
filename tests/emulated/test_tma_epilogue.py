"""Tiles that leave a kernel by TMA: through the user's shared tile, or staged by the compiler; and when they do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_runtime.artifact import Artifact
from tile_runtime_cpu.emulator.kernel import load
from tile_runtime_cpu.emulator.report import EmulationError

HOPPER = "cuda -arch=sm_90a"


def product(m: int, n: int, k: int, staged: bool, dtype: str = "float16", tiles: int = 1, **hints: Any) -> Any:
    """C = A @ B; each block makes `tiles` tiles of C, one above the other."""
    bm, bn, bk = 64, 64, 32

    @T.prim_func
    def main(A: T.Tensor((m, k), "float16"), B: T.Tensor((k, n), "float16"), C: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm * tiles), threads=128) as (bx, by):
            a = T.alloc_shared((bm, bk), "float16")
            b = T.alloc_shared((bk, bn), "float16")
            out = T.alloc_shared((bm, bn), dtype)
            c = T.alloc_fragment((bm, bn), "float32")
            full = T.alloc_barrier(128)
            steps = T.ceildiv(k, bk)
            for t in T.serial(tiles) if tiles > 1 else [0]:
                row = (by * tiles + t) * bm
                T.clear(c)
                for i in T.serial(steps):
                    T.tma_copy(A[row, i * bk], a, barrier=full)
                    T.tma_copy(B[i * bk, bx * bn], b, barrier=full)
                    T.mbarrier_arrive(full)
                    T.mbarrier_wait_parity(full, (t * steps + i) % 2)
                    T.gemm(a, b, c)
                    T.sync_threads()
                if staged:
                    T.copy(c, out)
                    T.copy(out, C[row, bx * bn], **hints)
                else:
                    T.copy(c, C[row, bx * bn], **hints)

    return main


@pytest.fixture
def operands(values: Any) -> Any:
    """operands(m, n, k, dtype): A, B and their product."""

    def make(m: int, n: int, k: int, dtype: str) -> tuple[Any, Any, Any]:
        a, b = values((m, k), "float16", 1), values((k, n), "float16", 2)
        return a, b, (a.astype("float32") @ b.astype("float32")).astype(dtype)

    return make


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (100, 72, 40)])
def test_a_product_is_stored_by_one_thread(agree, operands, m, n, k, staged):
    a, b, c = operands(m, n, k, "float16")
    hints = {} if staged else {"prefer_instruction": "tma"}
    artifact = agree(product(m, n, k, staged, **hints), [a, b], c)
    text = artifact.source
    assert text.count("tl::tma_store(") == 1
    assert "*__restrict__ C" not in text
    assert text.index("tl::fence_proxy_async_shared") < text.rindex("tl::sync_threads()") < text.index("tl::tma_store")
    assert text.index("tl::tma_store") < text.index("tl::bulk_wait_read<0>")


def test_elements_of_two_bytes_are_stored_in_whole_sectors_by_their_threads(agree, operands):
    a, b, c = operands(64, 64, 64, "float16")
    text = agree(product(64, 64, 64, False), [a, b], c).source
    assert "tl::tma_store" not in text
    assert "tl::transpose_quad" in text


def test_wide_elements_are_stored_by_their_threads_unless_they_lie_in_shared_memory(agree, operands):
    a, b, c = operands(64, 64, 64, "float32")
    assert "tl::tma_store" not in agree(product(64, 64, 64, False, "float32"), [a, b], c).source
    assert "tl::tma_store" in agree(product(64, 64, 64, True, "float32"), [a, b], c).source


def test_a_tile_is_written_again_after_its_store(agree, operands):
    """In a loop of tiles the wait stands before the next tile is written, for the store's data too."""
    a, b, c = operands(256, 64, 64, "float16")
    artifact = agree(product(256, 64, 64, True, tiles=2), [a, b], c)
    text = artifact.source
    assert text.index("tl::bulk_wait<0>()") < text.index("tl::stmatrix") < text.index("tl::tma_store")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("  tl::fence_proxy_async_shared();\n", "missing-proxy-fence"),
        ("      tl::bulk_wait<0>();\n", "write-under-asynchronous-read"),
    ],
)
def test_the_emulator_misses_what_is_taken_away(operands, monkeypatch, line, kind):
    kernel = tilelang.compile(product(256, 64, 32, True, tiles=2), target=HOPPER, execution="emulate")
    artifact, bare = kernel.artifact, line.strip()
    assert bare in artifact.source
    text = artifact.source.replace(bare, "", 1)
    binaries = [{"file": b.file, "kind": b.kind} for b in artifact.manifest.binaries]
    files = {**artifact.files, artifact.manifest.source: text.encode()}
    planted = load(Artifact(artifact.manifest.replace(binaries=binaries), files))
    a, b, c = operands(256, 64, 32, "float16")
    monkeypatch.setenv("TILELANG_EMULATE_MODE", "late")
    with pytest.raises(EmulationError, match=kind):
        planted(a, b, np.zeros_like(c))


def test_stores_that_something_could_meet_stay_with_the_threads(agree, values, operands):
    """A tensor that the kernel also reads, and a copy that the user keeps from TMA."""
    n = 64

    @T.prim_func
    def main(A: T.Tensor((n, n), "float16"), C: T.Tensor((n, n), "float16")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((n, n), "float16")
            full = T.alloc_barrier(128)
            T.tma_copy(A, a, barrier=full)
            T.mbarrier_arrive(full)
            T.mbarrier_wait_parity(full, 0)
            for i, j in T.Parallel(n, n):
                a[i, j] = a[i, j] + C[i, j]
            T.copy(a, C)

    x = values((n, n), "float16")
    kernel = tilelang.compile(main, target=HOPPER, execution="emulate")
    y = x.copy()
    kernel(x, y)
    np.testing.assert_array_equal(y, x + x)
    assert "tl::tma_store" not in kernel.artifact.source
    assert "the kernel also reads C" in str(kernel.artifact.report["notes"])
    a, b, c = operands(64, 64, 64, "float16")
    assert "tl::tma_store" not in agree(product(64, 64, 64, True, disable_tma=True), [a, b], c).source


def test_the_text_compiles_for_the_device(values):
    pytest.importorskip("tile_runtime_cuda")
    artifact = tilelang.compile(product(256, 128, 64, True, tiles=2), target=HOPPER).artifact
    (resources,) = artifact.manifest.resources.values()
    assert resources["spills"] == 0
    assert resources["stack"] == 0
