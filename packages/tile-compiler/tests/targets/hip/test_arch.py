"""Facts of the architectures, and what the target refuses."""

from __future__ import annotations

from typing import Any

import pytest

import tilelang
import tilelang.language as T
from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.simt.errors import SharedMemoryOverflow
from tile_compiler.targets.cuda.arch import cuda_arch
from tile_compiler.targets.hip.arch import hip_arch
from tilelang.errors import UnknownTarget
from tilelang.target import DEFAULT_ARCH, parse


def scale(threads: int = 128, size: int = 1024) -> Any:
    @T.prim_func
    def scale(A: T.Tensor((size,), "float32"), B: T.Tensor((size,), "float32")):
        with T.Kernel(1, threads=threads) as bx:
            for i in T.Parallel(size):
                B[i] = A[i] * 2.0

    return scale


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gfx908", "is too old: CDNA2"),
        ("gfx803", "is too old: CDNA2"),
        ("gfx1100", "is not known"),
        ("sm_90", "is not known"),
    ],
)
def test_unknown_architectures(name: str, said: str) -> None:
    with pytest.raises(UnknownTarget, match=rf"the architecture {name} {said}(.|\n)*one of gfx90a, gfx942"):
        hip_arch(name)


def test_a_bare_target_means_one_constant() -> None:
    assert hip_arch("").name == DEFAULT_ARCH["hip"] == "gfx942"
    assert cuda_arch("").name == DEFAULT_ARCH["cuda"] == "sm_90a"


@pytest.mark.parametrize("spec", ["hip -mcpu=gfx90a", {"kind": "hip", "mcpu": "gfx90a"}, "rocm -mcpu=gfx90a"])
def test_forms_of_the_target(spec: Any) -> None:
    assert (parse(spec).kind, parse(spec).arch) == ("hip", "gfx90a")
    manifest = tilelang.lower(scale(), target=spec).artifact.manifest
    assert (manifest.target.kind, manifest.target.arch) == ("hip", "gfx90a")


def test_a_tvm_target_names_the_architecture() -> None:
    tvm = pytest.importorskip("tvm")
    spec = tvm.target.Target({"kind": "rocm", "mcpu": "gfx90a"})
    assert str(parse(spec)) == "hip -mcpu=gfx90a"


def test_occupancy() -> None:
    arch = hip_arch("gfx942")
    assert arch.occupancy(256, 64, 0) == 8  # registers: 512 / 64 = 8 waves on each of 4 SIMDs, 4 waves to a block
    assert arch.occupancy(256, 129, 0) == 3  # 136 after rounding: 3 waves
    assert arch.occupancy(256, 64, 20 << 10) == 3  # LDS: 64 KiB / 20 KiB
    assert arch.occupancy(64, 8, 0) == 32  # waves
    assert arch.occupancy(128, 8, 0) == 16  # blocks that wait at barriers


def test_too_much_shared_memory_names_the_buffers() -> None:
    @T.prim_func
    def big(A: T.Tensor((192, 256), "float16"), B: T.Tensor((192, 256), "float16")):
        with T.Kernel(1, threads=128) as bx:
            s = T.alloc_shared((192, 256), "float16")
            T.copy(A, s)
            T.copy(s, B)

    with pytest.raises(
        SharedMemoryOverflow, match=r"s 98304 bytes(.|\n)*at most 65536 bytes on gfx942(.|\n)*use smaller tiles$"
    ):
        tilelang.lower(big, target="hip -mcpu=gfx942")


def test_a_barrier_of_a_part_of_the_block_is_refused() -> None:
    @T.prim_func
    def part(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128) as bx:
            T.sync_threads(1, 64)
            for i in T.Parallel(128):
                A[i] = 1.0

    with pytest.raises(UnsupportedOnTarget, match=r"gfx90a has no barrier for a part of a block") as caught:
        tilelang.lower(part, target="hip -mcpu=gfx90a")
    assert "test_arch.py:" in str(caught.value)
    assert "T.sync_threads() without arguments" in str(caught.value)
