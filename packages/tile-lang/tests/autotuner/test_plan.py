"""A sweep compiled in one place and measured in another, which has no compiler."""

import json
import os
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest

import tilelang
import tilelang.language as T
from tile_runtime import registry
from tilelang.autotuner import measure, merge, results
from tilelang.autotuner.classes import device_key
from tilelang.errors import BadTuningFile, TuningFailed
from tilelang.target import parse

# Ends the process that imports what a machine with nothing but runtimes lacks.
WITHOUT_COMPILER = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tvm", "tvm_ffi", "tile_compiler"):
            raise ImportError(name + " is not here")
sys.meta_path.insert(0, Absent())
"""


def shift(n, block=16, by=1.0):
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block)) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + by

    return main


def tuned(target="cpu", **options):
    options = {"warmup": 0, "rep": 1, "verbose": False, **options}
    return tilelang.autotune(configs={"block": [16, 32]}, **options)(tilelang.jit(target=target, out_idx=[1])(shift))


def test_a_packed_sweep_is_measured_without_compiler_and_used(tmp_path, folder):
    given = np.linspace(0, 1, 80, dtype=np.float32)
    options = {"supply_prog": lambda params: [given], "ref_prog": lambda a: np.asarray(a) + 1}
    tuned(**options).pack(tmp_path / "sweep", 80)
    tuned(**options).pack(tmp_path / "sweep", 200)
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "sitecustomize.py").write_text(WITHOUT_COMPILER)
    path = os.pathsep.join([str(tmp_path / "absent"), *filter(None, sys.path)])
    command = [sys.executable, "-m", "tilelang.autotuner", "measure", str(tmp_path / "sweep")]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert "reference has" not in done.stderr
    # The inputs are of the first size: the second sweep's kernels refuse them, which is the error that is shown.
    assert done.returncode == 1
    assert "no configuration of shift can be used" in done.stderr
    merge([tmp_path / "sweep" / "results.json"])
    kernel = tuned()(80)
    assert kernel.config in ({"block": 16}, {"block": 32})
    assert kernel.latency > 0
    (record,) = results.read(folder / "autotuner" / "results.json")["shift"][device_key(parse("cpu"))].values()
    assert record["measured"] == {"n": 80, "by": 1.0}


def test_packing_again_replaces_and_measuring_again_does_nothing(tmp_path, folder, monkeypatch):
    for _ in range(2):
        tuned().pack(tmp_path, 64)
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert [s["class"] for s in plan["sweeps"]] == ["n=64"]
    assert [c["artifact"] for c in plan["sweeps"][0]["candidates"]] == ["0.tile", "1.tile"]
    first = measure(tmp_path, verbose=False)
    monkeypatch.setattr("tilelang.autotuner.sweep.run_all", None)
    assert measure(tmp_path, verbose=False) == first


def test_cuda_is_compiled_here_and_chosen_by_a_recorded_measurement(tmp_path, folder, matmul, caplog):
    """The measurement is one that an H200 could have made; nothing here can."""
    jitted = tilelang.jit(target="cuda -arch=sm_90a", out_idx=[2])(matmul)
    configs = [
        {"block_M": 64, "block_N": 64, "block_K": 32},
        {"block_M": 128, "block_N": 128, "block_K": 32},
        {"block_M": 256, "block_N": 256, "block_K": 64},
    ]
    path = tmp_path / "shipped.json"
    tune = tilelang.autotune(configs=configs, results=path, verbose=False, name="matmul")(jitted)
    tune.pack(tmp_path / "sweep", 1024, 1024, 512)
    (sweep,) = json.loads((tmp_path / "sweep" / "plan.json").read_text())["sweeps"]
    packed = {c["config"]["block_M"]: c for c in sweep["candidates"]}
    assert packed[256]["pruned"].startswith("registers: C_local")
    assert sweep["target"] == "cuda -arch=sm_90a"
    artifact = tmp_path / "sweep" / sweep["folder"] / packed[64]["artifact"]
    assert tilelang.load(artifact).manifest.target.arch == "sm_90a"
    with pytest.raises(TuningFailed, match="no device for cuda -arch=sm_90a"):
        measure(tmp_path / "sweep", verbose=False)

    # Unmeasured, the model chooses; with the record, that is taken for every size of the class.
    assert tune(1024, 1024, 512).latency is None
    assert "chosen unmeasured" in caplog.text
    record = {"config": configs[0], "ms": 0.004, "candidates": []}
    results.add(path, {"matmul": {"NVIDIA H200, sm_90a": {sweep["class"]: record}}})
    again = tilelang.autotune(configs=configs, results=path, name="matmul")(jitted)
    kernel = again(1000, 1024, 512)
    assert (kernel.config, kernel.latency) == (configs[0], 0.004)


def test_a_device_that_is_announced_measures_its_own_sweeps(monkeypatch):
    class Device:
        name = "cuda"

        def describe(self):
            return {"devices": [namedtuple("Found", "name")("NVIDIA H200")._asdict()]}

        def arch(self):
            return "sm_90a"

    monkeypatch.setattr(registry, "_loaded", {**registry._loaded, "cuda": Device()})
    assert device_key(parse("cuda -arch=sm_90a")) == "NVIDIA H200, sm_90a"
    assert device_key(parse("cuda")) == "NVIDIA H200, sm_90a"


@pytest.mark.parametrize(
    "text",
    ["no JSON", "{}", '{"format": 1, "sweeps": [{}]}'],
)
def test_a_plan_that_is_none(tmp_path, text):
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(BadTuningFile, match="no plan of a sweep"):
        measure(tmp_path)


def test_a_plan_names_no_file_outside_of_its_folder(tmp_path, folder):
    tuned().pack(tmp_path, 64)
    plan = json.loads((tmp_path / "plan.json").read_text())
    plan["sweeps"][0]["candidates"][0]["artifact"] = "../other.tile"
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(BadTuningFile, match="outside of its folder"):
        measure(tmp_path)
