"""From `prebuild` to a call in a process that cannot compile, and what is kept of a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from typing import Any

import pytest

import tile_ops
from tile_ops import prebuild
from tile_ops.kernel import KernelSpec, Target
from tile_ops.kernel.prebuilt import find, unpacked
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
    refused = prebuild.prebuild({"cpu": tmp_path}, [prebuild.Job(spec_of(300), "cpu", arch)])
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
    prebuild.prebuild({"cpu": tmp_path}, [prebuild.Job(spec_of(300), "cpu", arch) for arch in archs])
    index = json.loads((tmp_path / "index.json").read_text())
    found = {}
    for entry in index["kernels"].values():
        target = Artifact.from_bytes(unpacked((tmp_path / entry["file"]).read_bytes())).manifest.target
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
    from tile_ops.normalization.configs import plan
    from tile_ops.normalization.problem import NormProblem

    spec = plan(NormProblem(1, 300, "float32", None), Target("cuda", "sm_80")).kernels[0][1]
    made = prebuild.make(prebuild.Job(spec, "cuda", "sm_80", (prebuild.PTX,)))
    manifest = Artifact.from_bytes(unpacked(made.content)).manifest
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
    work = [prebuild.Job(spec, "cuda", "sm_80", ("sm_86",)), prebuild.Job(spec, "cuda", "sm_89")]
    refused = prebuild.prebuild({"cuda": tmp_path}, work)
    assert [[arch for arch, _ in made.refusals] for made in refused] == [["sm_86"], ["sm_89"]]
    said = capsys.readouterr().out
    assert "sm_86 normalization.hold(block_rows=1): left out, a block needs 122880 bytes of shared memory" in said
    assert "sm_89 normalization.hold(block_rows=1): left out, " in said
    index = json.loads((tmp_path / "index.json").read_text())
    assert list(index["kernels"]) == [spec.key("sm_80")]


def test_a_newer_card_takes_the_binary_of_an_older_one_of_its_generation(tmp_path, monkeypatch):
    """sm_86 and sm_89 find the file of sm_80, which carries PTX for cards that are newer than any of them."""
    work = prebuild.jobs("cuda", prebuild.ARCHS["cuda"], ["normalization"])
    assert {job.arch for job in work} == {"sm_80", "sm_90a"}
    job = next(job for job in work if job.arch == "sm_80")
    assert job.serves == ("sm_86", "sm_89")
    prebuild.prebuild({"cuda": tmp_path}, [job])
    monkeypatch.setenv("TILE_OPS_PREBUILT", str(tmp_path))
    for arch in ("sm_80", "sm_86", "sm_89", "sm_120"):
        found, reason = find(job.spec, Target("cuda", arch))
        assert found is not None, (arch, reason)
        kinds = {binary.kind for binary in found.load().manifest.binaries}
        assert {"cubin", "ptx"} <= kinds, arch
    assert find(job.spec, Target("cuda", "sm_75"))[0] is None


def test_levels_of_a_cpu_are_compiled_each_for_itself():
    work = prebuild.jobs("cpu", prebuild.ARCHS["cpu"], ["grouped_gemm"])
    assert {job.arch for job in work} == set(prebuild.ARCHS["cpu"])
    assert not any(job.serves for job in work)


def test_a_slow_kernel_fails_the_run_and_every_later_one(tmp_path, capsys, monkeypatch):
    from tile_compiler.errors import SlowDeviceCode
    from tile_ops.kernel import kernels

    def says(text):
        def build(*given, **more):
            warnings.warn(text, SlowDeviceCode, stacklevel=2)
            warnings.warn("something else", stacklevel=2)
            return plain(*given, **more)

        return build

    plain = kernels.build
    monkeypatch.setattr(kernels, "_function", lambda family, name: needs_120_kib)
    spec = KernelSpec.of("normalization", "hold", block_rows=1)
    monkeypatch.setattr(
        prebuild, "jobs", lambda kind, *_: [prebuild.Job(spec, kind, "sm_80")] if kind == "cuda" else []
    )
    assert prebuild.main([str(tmp_path / "fast"), "--processes", "1"]) == 0
    assert "SLOW" not in capsys.readouterr().out

    monkeypatch.setattr(kernels, "build", says("[TL210] hold_kernel: ptxas spills 8 bytes of registers\n  --> a line"))
    with pytest.warns(UserWarning, match="something else"):
        assert prebuild.main([str(tmp_path / "slow"), "--processes", "1"]) == 1
    line = "SLOW sm_80 normalization.hold(block_rows=1): [TL210] hold_kernel: ptxas spills 8 bytes of registers\n"
    assert line in capsys.readouterr().out
    assert prebuild.main([str(tmp_path / "slow"), "--processes", "1"]) == 1  # nothing is compiled
    assert line in (said := capsys.readouterr().out)
    assert "1 of 1 kernels are there" in said


def races(block_rows: int) -> Any:
    import tilelang.language as T

    @T.prim_func
    def hold(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            Y[0] = X[T.get_thread_binding()]

    return hold


def test_a_kernel_that_does_not_compile_is_named_and_the_others_are_made(tmp_path, capsys, monkeypatch):
    from tile_ops.kernel import kernels

    made = {"hold": needs_120_kib, "race": races}
    monkeypatch.setattr(kernels, "_function", lambda family, name: made[name])
    specs = [KernelSpec.of("normalization", name, block_rows=1) for name in ("race", "hold")]
    monkeypatch.setattr(
        prebuild, "jobs", lambda kind, *_: [prebuild.Job(s, kind, "sm_80") for s in specs if kind == "cuda"]
    )
    assert prebuild.main([str(tmp_path), "--processes", "1"]) == 1
    said = capsys.readouterr().out
    assert "FAILED sm_80 normalization.race(block_rows=1): [TL205] a race on Y\n  --> " in said
    assert said.endswith(
        "0 kernels left out of an architecture\nFAILED sm_80 normalization.race(block_rows=1): [TL205] a race on Y\n"
    )
    assert prebuild.main([str(tmp_path), "--processes", "1"]) == 1  # tried again
    assert "1 of 2 kernels are there" in capsys.readouterr().out


def test_what_is_cached_is_compiled_again(monkeypatch):
    """Its warnings came when it was compiled: found in the cache it would pass for fast."""
    import tilelang.kernel
    from tile_ops.kernel import kernels
    from tilelang import cache_control

    def build(*given):
        asked.append(cache_control.is_cache_enabled())
        return plain(*given)

    asked: list[bool] = []
    plain = tilelang.kernel.build
    monkeypatch.setattr(cache_control, "_enabled", True)
    monkeypatch.setattr(tilelang.kernel, "build", build)
    monkeypatch.setattr(kernels, "_function", lambda family, name: needs_120_kib)
    assert prebuild.make(prebuild.Job(KernelSpec.of("normalization", "hold", block_rows=1), "cuda", "sm_80")).content
    assert asked == [False]
    assert cache_control.is_cache_enabled()


def counted(monkeypatch) -> list[prebuild.Job]:
    """The jobs that are made from now on, each with a content of its own."""
    made: list[prebuild.Job] = []

    def make(job):
        if job.arch == "x86-64-v4":
            raise KeyboardInterrupt
        made.append(job)
        return prebuild.Made(job, f"{len(made)}".encode(), (job.arch,), (), 0.0)

    monkeypatch.setattr(prebuild, "make", make)
    return made


def test_a_run_goes_on_where_one_before_it_ended(tmp_path, monkeypatch, capsys):
    made = counted(monkeypatch)
    short, long = (prebuild.Job(spec_of(columns), "cpu", "x86-64-v3") for columns in (300, 2000))
    with pytest.raises(KeyboardInterrupt):
        prebuild.prebuild({"cpu": tmp_path}, [short, prebuild.Job(spec_of(300), "cpu", "x86-64-v4")])
    prebuild.prebuild({"cpu": tmp_path}, [short, long])
    assert made == [short, long]
    assert "1 of 2 kernels are there\n[1/1, 0 min left] x86-64-v3" in capsys.readouterr().out

    (file,) = (path for path in tmp_path.rglob("*.tile.xz") if path.read_bytes() == b"1")
    file.write_bytes(b"damaged")
    prebuild.prebuild({"cpu": tmp_path}, [short, long])
    assert made == [short, long, short]

    monkeypatch.setattr(prebuild, "compiler_digest", lambda kind: "another compiler")
    prebuild.prebuild({"cpu": tmp_path}, [long])  # the other one stays: its text is still the same
    assert made == [short, long, short, long]
    assert sorted(path.read_bytes() for path in tmp_path.rglob("*.tile.xz")) == [b"3", b"4"]


def test_a_run_that_has_no_time_left_begins_nothing(tmp_path, monkeypatch):
    made = counted(monkeypatch)
    prebuild.prebuild({"cpu": tmp_path}, [prebuild.Job(spec_of(300), "cpu", "x86-64-v3")], minutes=0)
    assert not made
    assert json.loads((tmp_path / "index.json").read_text())["kernels"] == {}


def test_kernels_of_older_text_are_removed(tmp_path, monkeypatch):
    counted(monkeypatch)
    short, long = spec_of(300), spec_of(2000)
    prebuild.prebuild({"cpu": tmp_path}, [prebuild.Job(spec, "cpu", "x86-64-v3") for spec in (short, long)])
    index = json.loads((tmp_path / "index.json").read_text())
    index["kernels"][short.key("x86-64-v3")]["source"] = "made from older text"
    (tmp_path / "index.json").write_text(json.dumps(index))
    prebuild.prebuild({"cpu": tmp_path}, [])
    assert [path.read_bytes() for path in tmp_path.rglob("*.tile.xz")] == [b"2"]


def test_kernels_that_no_plan_asks_for_are_removed_by_a_run_for_all(tmp_path, monkeypatch):
    counted(monkeypatch)
    short, long = (prebuild.Job(spec_of(columns), "cpu", "x86-64-v3") for columns in (300, 2000))
    prebuild.prebuild({"cpu": tmp_path}, [short, long])

    def left(work, whole):
        prebuild.prebuild({"cpu": tmp_path}, work, whole=whole)
        return sorted(path.read_bytes() for path in tmp_path.rglob("*.tile.xz"))

    assert left([short], None) == [b"1", b"2"]
    assert left([], {"cpu": ["gemm"]}) == [b"1", b"2"]  # they are of another family
    assert left([short], {"cpu": ["normalization"]}) == [b"1"]
    assert left([], {"cpu": []}) == []


def test_the_compiler_is_known_by_what_its_files_hold(tmp_path, monkeypatch):
    import importlib.util
    from types import SimpleNamespace

    (tmp_path / "lower.py").write_text("one")
    found = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found if name == "tile_compiler" else None)
    first = prebuild.compiler_digest("cpu")
    os.utime(tmp_path / "lower.py", (0, 0))
    assert prebuild.compiler_digest("cpu") == first
    (tmp_path / "lower.py").write_text("two")
    assert prebuild.compiler_digest("cpu") != first


def test_what_is_for_another_kind_of_target_alone_does_not_count(tmp_path, monkeypatch):
    import importlib.util
    from types import SimpleNamespace

    def find_spec(name):
        return SimpleNamespace(submodule_search_locations=[str(tmp_path / name)])

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    for file in ("tile_compiler/targets/cpu/codegen.py", "tile_runtime_cpu/build.py"):
        before = {kind: prebuild.compiler_digest(kind) for kind in prebuild.ARCHS}
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("new")
        assert [kind for kind in prebuild.ARCHS if prebuild.compiler_digest(kind) != before[kind]] == ["cpu"]


def test_unknown_families_are_named():
    with pytest.raises(SystemExit, match="no family norm; these are: .*normalization"):
        prebuild.jobs("cpu", ["x86-64-v3"], ["norm"])
