"""`target="hip"` on a machine without an AMD GPU: source, report, export and load; only the call is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
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


@pytest.mark.parametrize("execution", ["device", "emulate"])
def test_a_product_in_tf32_leaves_the_rounding_to_the_instruction(execution: str) -> None:
    @T.prim_func
    def product(A: T.Tensor((50, 40), "float32"), B: T.Tensor((40, 70), "float32"), C: T.Tensor((50, 70), "float32")):
        with T.Kernel(T.ceildiv(70, 64), T.ceildiv(50, 64), threads=128) as (bx, by):
            a, b = T.alloc_shared((64, 16), "float32"), T.alloc_shared((16, 64), "float32")
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(40, 16), num_stages=2):
                T.copy(A[by * 64, k * 16], a)
                T.copy(B[k * 16, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    configs = {"tl.allow_tf32": True}
    kernel = tilelang.compile(product, target="hip -mcpu=gfx942", execution=execution, pass_configs=configs)
    assert "_xf32(" in kernel.get_kernel_source()
    if execution == "emulate":
        rng = np.random.default_rng(0)
        A, B = (rng.standard_normal(shape).astype("float32") for shape in ((50, 40), (40, 70)))
        C = np.zeros((50, 70), "float32")
        kernel(A, B, C)
        np.testing.assert_allclose(C, A.astype("float64") @ B.astype("float64"), rtol=1e-2, atol=1e-2)


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
