"""From `prebuild` to a call in a process that cannot compile, and what is kept of a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

import tile_ops
from tile_ops import prebuild
from tile_ops.kernel import KernelSpec
from tile_runtime import registry
from tile_runtime.artifact import Artifact

#: A program in whose process nothing of the compiler can be imported.
ALONE = """
import sys
for name in ("tilelang", "tile_compiler", "tvm", "tvm_ffi"):
    sys.modules[name] = None
import torch, tile_ops

x, weight = torch.randn(5, 300, generator=torch.Generator().manual_seed(0)), torch.linspace(-1, 1, 300)
for rows in (x, x.T.contiguous().T, torch.cat([x.flatten()[:1], x.flatten()])[1:].view(5, 300)):
    y = tile_ops.rms_norm(rows, weight)
    expected = rows.double() * (rows.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight.double()
    assert (y - expected).abs().max() < 1e-5
(kernel,) = tile_ops.explain(tile_ops.rms_norm, x, weight).kernels
print(kernel.origin, kernel.launches)
try:
    tile_ops.rms_norm(x.half(), weight.half())
except tile_ops.errors.KernelUnavailable as error:
    print(error)
"""


def spec_of(columns: int) -> KernelSpec:
    import torch

    x = torch.ones(1, columns)
    return tile_ops.explain(tile_ops.rms_norm, x, x[0]).kernels[0].spec


def test_a_prebuilt_kernel_runs_where_there_is_no_compiler(tmp_path):
    arch = registry.device("cpu").arch()
    refused = prebuild.prebuild(tmp_path, [prebuild.Job(spec_of(300), "cpu", arch)])
    assert not refused
    env = os.environ | {"TILE_OPS_PREBUILT": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", ALONE], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "prebuilt 3"
    assert "dtype='float16'" in second
    assert "not among the prebuilt kernels, and none can be compiled" in second


def test_levels_of_the_cpu_are_compiled_for_and_named(tmp_path):
    archs = prebuild.ARCHS["cpu"]
    prebuild.prebuild(tmp_path, [prebuild.Job(spec_of(300), "cpu", arch) for arch in archs])
    index = json.loads((tmp_path / "index.json").read_text())
    found = {}
    for entry in index["kernels"].values():
        target = Artifact.load(tmp_path / entry["file"]).manifest.target
        found[entry["arch"]] = (target.arch, target.features)
    assert found == {
        "x86-64-v3": ("x86-64-v3", ()),
        "x86-64-v4": ("x86-64-v4", ()),
        "x86-64-v4+bf16+vnni": ("x86-64-v4", ("avx512bf16", "avx512vnni")),
        "x86-64-v4+bf16+vnni+amx": (
            "x86-64-v4",
            ("avx512bf16", "avx512vnni", "amx-tile", "amx-bf16", "amx-int8"),
        ),
    }


def test_a_gpu_kernel_is_shipped_with_all_variants_and_ptx_for_newer_cards():
    made = prebuild.make(prebuild.Job(spec_of(300), "cuda", prebuild.PTX))
    manifest = Artifact.from_bytes(made.content).manifest
    assert manifest.variants[-1].guard is None  # serves any call
    assert len(manifest.variants) == 3
    kinds = [binary.kind for binary in manifest.binaries]
    assert (kinds.count("cubin"), kinds.count("ptx")) == (3, 3)
    assert not {"source", "json", "text"} & set(kinds)


def needs_120_kib(block_rows: int) -> Any:
    import tilelang.language as T

    @T.prim_func
    def hold(X: T.Tensor((120, 256), "float32"), Y: T.Tensor((120, 256), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((120, 256), "float32")
            T.copy(X, tile)
            T.copy(tile, Y)

    return hold


def test_what_an_architecture_cannot_hold_is_left_out_and_said(tmp_path, capsys, monkeypatch):
    from tile_ops.kernel import kernels

    monkeypatch.setattr(kernels, "_function", lambda family, name: needs_120_kib)
    spec = KernelSpec.of("normalization", "hold", block_rows=1)
    refused = prebuild.prebuild(tmp_path, [prebuild.Job(spec, "cuda", arch) for arch in ("sm_80", "sm_86")])
    assert [made.job.arch for made in refused] == ["sm_86"]
    assert "sm_86 normalization.hold(block_rows=1): left out, " in capsys.readouterr().out
    index = json.loads((tmp_path / "index.json").read_text())
    assert [entry["arch"] for entry in index["kernels"].values()] == ["sm_80"]


def test_a_folder_keeps_what_is_still_current(tmp_path, monkeypatch):
    short, long = spec_of(300), spec_of(2000)
    contents = iter([b"one", b"two", b"three", b"four"])
    monkeypatch.setattr(prebuild, "make", lambda job: prebuild.Made(job, next(contents), "", 0.0))
    prebuild.prebuild(tmp_path, [prebuild.Job(short, "cpu", "x86-64-v3"), prebuild.Job(long, "cpu", "x86-64-v3")])
    prebuild.prebuild(tmp_path, [prebuild.Job(long, "cpu", "x86-64-v3")])
    assert sorted(path.read_bytes() for path in tmp_path.rglob("*.tile")) == [b"one", b"three"]

    index = json.loads((tmp_path / "index.json").read_text())
    index["kernels"][short.key("x86-64-v3")]["source"] = "made from older text"
    (tmp_path / "index.json").write_text(json.dumps(index))
    prebuild.prebuild(tmp_path, [prebuild.Job(long, "cpu", "x86-64-v4")])
    assert sorted(path.read_bytes() for path in tmp_path.rglob("*.tile")) == [b"four", b"three"]


def test_a_run_that_is_cut_off_leaves_what_it_has(tmp_path, monkeypatch):
    def make(job):
        if job.arch == "x86-64-v4":
            raise KeyboardInterrupt
        return prebuild.Made(job, b"one", "", 0.0)

    monkeypatch.setattr(prebuild, "make", make)
    spec = spec_of(300)
    with pytest.raises(KeyboardInterrupt):
        prebuild.prebuild(tmp_path, [prebuild.Job(spec, "cpu", arch) for arch in prebuild.ARCHS["cpu"]])
    index = json.loads((tmp_path / "index.json").read_text())
    assert list(index["kernels"]) == [spec.key("x86-64-v3")]


def test_unknown_families_are_named():
    with pytest.raises(SystemExit, match="no family norm; these are: .*normalization"):
        prebuild.jobs("cpu", ["x86-64-v3"], ["norm"])
