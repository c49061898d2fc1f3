"""Whole kernels of sm_90a: right against numpy, without a false alarm, over seeds and both modes of asynchronous work."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tile_runtime.artifact import Artifact
from tile_runtime.errors import TensorMapError
from tile_runtime.manifest import Manifest
from tile_runtime_cpu.emulator import kernel as emulator_kernel

KERNELS = Path(__file__).parent / "kernels"

MODES = [(seed, mode) for seed in (0, 1, 2) for mode in ("early", "late")]


def operands(m, n, k, dtype="float16"):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((rows, k)).astype(dtype) for rows in (m, n))
    return a, b, a.astype("f8") @ b.astype("f8").T


@pytest.mark.parametrize(("seed", "mode"), MODES)
def test_gemm_by_tma_and_wgmma(kernel_file, tensor_map, watched, seed, mode):
    m, n, k = 128, 256, 320
    a, b, expected = operands(m, n, k)
    c = np.full((m, n), np.nan, "f4")
    args = [tensor_map(a, (64, 64), swizzle=128), tensor_map(b, (64, 128), swizzle=128), c, n, k]
    module, buffers = kernel_file("hopper_gemm.cu"), watched(A=a, B=b, O=c)
    module.launch(
        "gemm", (n // 128, m // 64), (256,), 2 * 24576 + 64, args, seed=seed, mode=mode, buffers=buffers
    ).check()
    np.testing.assert_allclose(c, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(("seed", "mode"), MODES)
@pytest.mark.parametrize(("m", "n", "k"), [(256, 256, 192), (200, 328, 136), (8, 8, 64)])
def test_persistent_gemm_with_stores_by_tma(kernel_file, tensor_map, watched, m, n, k, seed, mode):
    a, b, expected = operands(m, n, k)
    c = np.full((m, n), np.nan, "f2")
    maps = [
        tensor_map(a, (64, 128), swizzle=128),
        tensor_map(b, (64, 128), swizzle=128),
        tensor_map(c, (64, 64), swizzle=128),
    ]
    module, buffers = kernel_file("hopper_persistent.cu"), watched(A=a, B=b, O=c)
    shared = 3 * 32768 + 2 * 8192 + 64
    module.launch("gemm", (2,), (384,), shared, [*maps, m, n, k], seed=seed, mode=mode, buffers=buffers).check()
    np.testing.assert_allclose(c.astype("f8"), expected, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(("seed", "mode"), MODES)
@pytest.mark.parametrize(("m", "n", "k"), [(256, 256, 192), (120, 136, 64)])
def test_gemm_by_clusters_with_multicast(kernel_file, tensor_map, watched, m, n, k, seed, mode):
    a, b, expected = operands(m, n, k, ml_dtypes.bfloat16)
    c = np.full((m, n), np.nan, "f4")
    args = [tensor_map(a, (64, 64), swizzle=128), tensor_map(b, (64, 64), swizzle=128), c, m, n, k]
    module, buffers = kernel_file("hopper_cluster.cu"), watched(A=a, B=b, O=c)
    grid = (-(-n // 128), -(-m // 128) * 2)
    more = {"seed": seed, "mode": mode, "buffers": buffers, "cluster": (1, 2)}
    module.launch("gemm", grid, (256,), 2 * 24576 + 64, args, **more).check()
    np.testing.assert_allclose(c, expected, rtol=0, atol=1e-4)


def artifact_of(text):
    """The cluster kernel as a compiler would store it: tensor maps and cluster in the manifest."""
    tensor = {"kind": "tensor", "shape": [["dim", "m"], ["dim", "k"]], "dtype": "bfloat16", "align": 16, "access": "r"}
    params = [
        {"name": "A", **tensor},
        {"name": "B", **tensor, "shape": [["dim", "n"], ["dim", "k"]]},
        {"name": "C", **tensor, "shape": [["dim", "m"], ["dim", "n"]], "dtype": "float32", "access": "w"},
    ]
    sizes = [["value", "int32", ["dim", d]] for d in "mnk"]
    launch = {
        "binary": "k.cubin",
        "symbol": "gemm",
        "grid": [["ceildiv", ["dim", "n"], 128], ["*", ["ceildiv", ["dim", "m"], 128], 2], 1],
        "block": [256, 1, 1],
        "cluster": [1, 2, 1],
        "shared": 2 * 24576 + 64,
        "args": [["tensormap", 0], ["tensormap", 1], ["param", "C"], *sizes],
    }
    data = {
        "format": 1,
        "name": "gemm",
        "target": {"kind": "cuda", "arch": "sm_90a"},
        "params": params,
        "dims": [{"name": d, "param": p, "axis": a} for d, p, a in (("m", "A", 0), ("n", "B", 0), ("k", "A", 1))],
        "outputs": ["C"],
        "tensormaps": [{"param": p, "dtype": "bfloat16", "box": [64, 64], "swizzle": 128} for p in "AB"],
        "variants": [{"launches": [launch]}],
        "binaries": [{"file": "k.cu", "kind": "source"}, {"file": "k.cubin", "kind": "cubin"}],
    }
    return Artifact(Manifest.from_json(data), {"k.cu": text.encode(), "k.cubin": b"\x7fELF"})


def test_an_artifact_with_tensor_maps_and_clusters(only_emulated):
    kernel = emulator_kernel.load(artifact_of((KERNELS / "hopper_cluster.cu").read_text()))
    a, b, expected = operands(256, 128, 192, ml_dtypes.bfloat16)
    np.testing.assert_allclose(kernel(a, b), expected, rtol=0, atol=1e-4)
    with pytest.raises(TensorMapError, match=r"map of A: strides of \(200,\) bytes"):
        kernel(a[:, :100].copy(), b[:, :100].copy())


def test_counters_of_a_gemm_by_wgmma(kernel_file, tensor_map, watched, only_emulated):
    n = 256
    a, b, _ = operands(n, n, n)
    c = np.zeros((n, n), "f4")
    args = [tensor_map(a, (64, 64), swizzle=128), tensor_map(b, (64, 128), swizzle=128), c, n, n]
    module, buffers = kernel_file("hopper_gemm.cu"), watched(A=a, B=b, O=c)
    counters = module.launch("gemm", (2, 4), (256,), 49216, args, mode="late", buffers=buffers).check().counters
    assert counters["wgmma"] == n**3 // (64 * 128 * 16)
    assert counters["tma_bytes"] == counters["global_read_bytes"] == 2 * 4 * n * (64 + 128) * 2
    assert counters["tma_loads"] == 2 * 8 * 4
