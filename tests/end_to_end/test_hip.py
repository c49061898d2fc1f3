"""`target="hip"` on a machine without an AMD GPU: source, report, export and load; only the call is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tilelang
import tilelang.language as T
from tile_runtime.artifact import Artifact
from tile_runtime_rocm import driver
from tilelang.errors import TargetUnavailable


@tilelang.jit(target="hip -mcpu=gfx942")
def row_sums(rows: int, cols: int) -> Any:
    @T.prim_func
    def row_sums(A: T.Tensor((rows, cols), "float16"), S: T.Tensor((rows,), "float32")):
        with T.Kernel(T.ceildiv(rows, 16), threads=128) as bx:
            tile = T.alloc_fragment((16, cols), "float16")
            sums = T.alloc_fragment((16,), "float32")
            T.copy(A[bx * 16, 0], tile)
            T.reduce_sum(tile, sums, dim=1)
            T.copy(sums, S[bx * 16])

    return row_sums


def test_source_and_report_need_no_gpu() -> None:
    kernel = row_sums(100, 128)
    source = kernel.get_kernel_source()
    assert source.startswith('#include "tl_hip.h"\n')
    assert "row_sums_kernel(" in source
    assert "tl::shfl_xor" in source
    report = str(kernel.report())
    assert "row_sums_kernel on gfx942:" in report
    assert "registers spilled" in report


def test_an_exported_kernel_is_loaded_again(tmp_path: Path) -> None:
    path = tmp_path / "row_sums.tile"
    row_sums(100, 128).export(path)
    manifest = Artifact.load(path).manifest
    assert (manifest.target.kind, manifest.target.arch) == ("hip", "gfx942")
    used = manifest.resources["row_sums_kernel"]
    assert used["spills"] == used["scratch"] == 0
    assert used["occupancy"] >= 1
    assert json.dumps(manifest.resources)
    loaded = tilelang.load(path)
    assert loaded.get_kernel_source().startswith('#include "tl_hip.h"\n')


@pytest.mark.skipif(bool(driver.devices()), reason="this machine has an AMD GPU")
def test_a_call_without_a_gpu_names_the_ways_out(tmp_path: Path) -> None:
    kernel = row_sums(100, 128)
    path = tmp_path / "row_sums.tile"
    kernel.export(path)
    for each in (kernel, tilelang.load(path)):
        with pytest.raises(TargetUnavailable) as caught:
            each(torch.zeros(100, 128, dtype=torch.float16), torch.zeros(100))
        text = str(caught.value)
        assert "row_sums was compiled for hip and cannot run here" in text
        assert "no AMD GPU" in text
        assert "TILELANG_EXECUTION=emulate" in text
