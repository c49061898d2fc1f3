"""What on_device.py packs, read back and compared, with the emulator in the GPU's place."""

from __future__ import annotations

import ctypes
import json

import numpy as np
import pytest

from tile_runtime.tensor_map import TensorMap
from tile_runtime_cpu import emulator

SOURCE = """#include "tl_cuda.cuh"
extern "C" __global__ void __launch_bounds__(32) k(const __grid_constant__ tl::tensor_map X, float* O, float s, int n) {
  float* tile = (float*)tl::shared_memory();
  uint64_t* bar = (uint64_t*)(tile + 64);
  if (threadIdx.x == 0) {
    tl::mbarrier_init(bar, 1);
    tl::fence_mbarrier_init();
    tl::mbarrier_arrive_expect_tx(bar, 128);
    tl::tma_load(tile, &X, bar, 16);
  }
  tl::sync_threads();
  tl::mbarrier_wait(bar, 0);
  O[n + threadIdx.x] = tile[threadIdx.x] * s;
}
"""


class EmulatedGpu:
    """Runs a packed case from its data alone, as on_device.Gpu does; `scale` makes its results wrong."""

    scale = 1.0

    def run(self, cubin, case, contents):
        arrays = [np.frombuffer(c, "u1").copy() for c in contents]
        args = []
        for kind, *rest in case.args:
            if kind == "number":
                args.append(rest[1])
            elif kind == "at":
                args.append(arrays[rest[0]].ctypes.data + rest[1])
            else:
                fields = {k: tuple(v) if isinstance(v, list) else v for k, v in rest[2].items()}
                args.append(TensorMap(**{**fields, "address": arrays[rest[0]].ctypes.data + rest[1]}))
        buffers = [(a.ctypes.data, a.nbytes, str(i), True) for i, a in enumerate(arrays)]
        module = emulator.compile(cubin.decode())
        module.launch(case.symbol, case.grid, case.block, case.shared, args, buffers=buffers).check()
        return [(a.view("f4") * np.float32(self.scale)).tobytes() for a in arrays]


@pytest.mark.parametrize(("scale", "verdict"), [(1.0, "exact"), (1.0001, "close"), (1.5, "WRONG")])
def test_a_launch_packed_and_run(on_device, only_emulated, monkeypatch, tmp_path, capsys, scale, verdict):
    x, y = np.arange(64, dtype="f4"), np.full(40, np.nan, "f4")
    recorder = on_device.Recorder(emulator.compile(SOURCE), tmp_path)
    buffers = [(x.ctypes.data, x.nbytes, "X", False), (y.ctypes.data, y.nbytes, "O", True, False)]
    tensor = TensorMap(x.ctypes.data, "float32", (64,), (), (32,))
    for _ in range(2):  # kept once
        recorder.launch("k", (1,), (32,), 512, [tensor, y, 2.0, 4], buffers=buffers).check()
        y[:] = np.nan
    (entry,) = [json.loads(p.read_text()) for p in tmp_path.glob("*.json")]
    assert entry["dtypes"] == ["float32", "float32"]
    assert [a[0] for a in entry["case"]["args"]] == ["map", "at", "number", "number"]
    (tmp_path / f"{entry['source']}.cubin").write_bytes(SOURCE.encode())
    gpu = EmulatedGpu()
    gpu.scale = scale
    monkeypatch.setattr(on_device, "Gpu", lambda: gpu)
    with pytest.raises(SystemExit) as ended:
        on_device.run(tmp_path, tmp_path / "report", lambda paths: [on_device.compared(path) for path in paths])
    assert bool(ended.value.code) == (verdict == "WRONG")
    assert f"{verdict}: 1 of 1" in capsys.readouterr().out
    assert json.loads((tmp_path / "report").read_text())[0]["verdict"] == verdict


@pytest.mark.parametrize(("start", "verdict"), [(18, "exact"), (16, "WRONG")])
def test_a_launch_that_the_device_must_refuse(on_device, only_emulated, monkeypatch, tmp_path, start, verdict):
    """Packed as refused: exact where the device raises, wrong where it goes through (here: a map that it may take)."""
    x, y = np.arange(64, dtype="f4"), np.zeros(32, "f4")
    source = SOURCE.replace("bar, 16)", "bar, n)")
    recorder = on_device.Recorder(emulator.compile(source), tmp_path)
    tensor = TensorMap(x.ctypes.data, "float32", (64,), (), (32,))
    buffers = [(x.ctypes.data, x.nbytes, "X", False), (y.ctypes.data, y.nbytes, "O", True)]
    report = recorder.launch("k", (1,), (32,), 512, [tensor, y, 1.0, 18], buffers=buffers)
    assert report.errors[0].kind == "bad-coordinates"
    (path,) = tmp_path.glob("*.json")
    entry = json.loads(path.read_text())
    entry["case"]["args"][3][2] = start
    path.write_text(json.dumps(entry))
    (tmp_path / f"{entry['source']}.cubin").write_bytes(source.replace("O[n + ", "O[").encode())
    monkeypatch.setattr(on_device, "Gpu", EmulatedGpu)
    assert on_device.compared(path)["verdict"] == verdict


def test_a_launch_that_fails_ends_its_process_alone(on_device, only_emulated, tmp_path):
    """There is no driver here, or no cubin: each launch fails by itself, and none is left out."""
    paths = [tmp_path / f"{i}.json" for i in range(3)]
    for path in paths:
        path.write_text(json.dumps({"test": f"of {path.stem}"}))
    verdicts = on_device.isolated(paths)
    assert [(v["test"], v["key"], v["verdict"]) for v in verdicts] == [(f"of {i}", str(i), "WRONG") for i in range(3)]
    assert all("the process ended with 1" in v["error"] for v in verdicts)


def test_differences(on_device):
    one, nan, other_nan = (np.array([v], "u4").tobytes() for v in (0x3F800000, 0x7FC00000, 0x7FFFFFFF))
    assert on_device.difference(nan, other_nan, "float32") == 0
    assert on_device.difference(nan, other_nan, "uint8") == float("inf")
    assert on_device.difference(one, nan, "float32") == float("inf")
    assert ctypes.sizeof(ctypes.c_float) == len(one)
