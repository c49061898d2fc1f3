"""`execution="emulate"` compiles no binary: the text is all it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tile_runtime_cuda.build
import tilelang
import tilelang.language as T
from tilelang.kernel import level2_key
from tilelang.options import make_options
from tilelang.target import resolve


def shifted(by: int) -> Any:
    @T.prim_func
    def main(X: T.Tensor((100,), "float32"), Y: T.Tensor((100,), "float32")):
        with T.Kernel(2, threads=64) as bx:
            for i in T.Parallel(64):
                if bx * 64 + i < 100:
                    Y[bx * 64 + i] = X[bx * 64 + i] + by

    return main


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100a"])
def test_the_device_compiler_is_not_called(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **more: Any) -> None:
        raise AssertionError("a binary was built")

    monkeypatch.setattr(tile_runtime_cuda.build, "build", refuse)
    kernel = tilelang.compile(shifted(3), out_idx=[1], target=f"cuda -arch={arch}", execution="emulate")
    assert {b.kind for b in kernel.manifest.binaries} == {"source", "json"}
    x = np.random.default_rng(0).standard_normal(100).astype("f4")
    np.testing.assert_array_equal(kernel(x), x + 3)


def test_text_is_that_of_the_device() -> None:
    texts = [
        tilelang.compile(shifted(4), target="cuda -arch=sm_80", execution=how).get_kernel_source()
        for how in ("emulate", "device")
    ]
    assert texts[0] == texts[1]


def test_device_and_emulator_do_not_share_cache_entries() -> None:
    target = resolve("cuda -arch=sm_80")
    keys = {level2_key(shifted(5), target, make_options(execution=how)) for how in ("emulate", "device")}
    assert len(keys) == 2


def test_equal_kernels_at_different_lines_do_not_share_an_artifact() -> None:
    """Findings would name the other one's lines."""

    @T.prim_func
    def main(X: T.Tensor((100,), "float32"), Y: T.Tensor((100,), "float32")):
        with T.Kernel(2, threads=64) as bx:
            for i in T.Parallel(64):
                if bx * 64 + i < 100:
                    Y[bx * 64 + i] = X[bx * 64 + i] + 5

    target = resolve("cuda -arch=sm_80")
    emulate, device = make_options(execution="emulate"), make_options(execution="device")
    assert level2_key(main, target, device) == level2_key(shifted(5), target, device)
    assert level2_key(main, target, emulate) != level2_key(shifted(5), target, emulate)


def test_an_exported_text_runs_in_the_emulator_again(tmp_path: Path) -> None:
    kernel = tilelang.compile(shifted(6), out_idx=[1], target="cuda -arch=sm_80", execution="emulate")
    kernel.export(tmp_path / "kernel.tile")
    x = np.random.default_rng(1).standard_normal(100).astype("f4")
    np.testing.assert_array_equal(tilelang.load(tmp_path / "kernel.tile")(x), x + 6)


def test_what_cp_async_reads_may_be_read_only() -> None:
    @T.prim_func
    def main(X: T.Tensor((64, 64), "float16"), Y: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((32, 64), "float16")
            for step in T.Pipelined(2, num_stages=2):
                T.copy(X[step * 32, 0], tile)
                T.copy(tile, Y[step * 32, 0])

    kernel = tilelang.compile(main, out_idx=[1], target="cuda -arch=sm_80", execution="emulate")
    assert "tl::cp_async<16>" in kernel.get_kernel_source()
    assert {p.name: p.access for p in kernel.manifest.params} == {"X": "r", "Y": "w"}
    x = np.random.default_rng(2).standard_normal((64, 64)).astype("f2")
    x.setflags(write=False)
    np.testing.assert_array_equal(kernel(x), x)
