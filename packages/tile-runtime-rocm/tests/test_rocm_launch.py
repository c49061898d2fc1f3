"""The launcher against a HIP runtime that records: what it passes, when it asks, how it fails."""

from __future__ import annotations

import gc
import importlib
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tile_runtime.artifact import Artifact
from tile_runtime.errors import (
    ArgumentDeviceError,
    ArgumentShapeError,
    CheckFailed,
    DeviceUnavailable,
    LoadError,
    OutputError,
)
from tile_runtime.manifest import Manifest
from tile_runtime_rocm import driver, plugin, profile
from tile_runtime_rocm.errors import LaunchError
from tile_runtime_rocm.launch import load
from tile_runtime_rocm.runtime import HipError, Runtime

from .fake_hip import OnDevice, OnSecond, RecordingHip, tensor

STREAM = 0x5EED
OBJECT = b"\x7fELF of kernels"


def add_manifest(**more: Any) -> dict[str, Any]:
    """`add(A[n], B[n], s) -> C[n]`."""
    vector = {"kind": "tensor", "dtype": "float32", "shape": [["dim", "n"]]}
    launch = {
        "binary": "k.hsaco",
        "symbol": "add_kernel",
        "grid": [["ceildiv", ["dim", "n"], 128], 1, 1],
        "block": [128, 1, 1],
        "shared": 0,
        "args": [["param", "A"], ["param", "B"], ["param", "C"], ["value", "int32", ["dim", "n"]], ["param", "s"]],
        **more.pop("launch", {}),
    }
    return {
        "format": 1,
        "name": "add",
        "target": {"kind": "hip", "arch": "gfx942"},
        "params": [
            {"name": "A", **vector, "access": "r", "align": 16},
            {"name": "B", **vector, "access": "r"},
            {"name": "s", "kind": "scalar", "dtype": more.pop("scalar", "float32"), "shape": []},
            {"name": "C", **vector, "access": "w"},
        ],
        "dims": [{"name": "n", "param": "A", "axis": 0}],
        "outputs": ["C"],
        "variants": [{"guard": None, "launches": [launch]}],
        "binaries": [{"file": "k.hsaco", "kind": "hsaco"}],
        **more,
    }


def loaded(hip: RecordingHip, **more: Any) -> Any:
    kernel = load(Artifact(Manifest.from_json(add_manifest(**more)), {"k.hsaco": OBJECT}), Runtime(hip))
    kernel._namespace["torch_types"].update((OnDevice, OnSecond))  # as if these were torch.Tensor itself
    for name in ("A", "B", "C"):
        kernel._namespace[f"td{['A', 'B', 's', 'C'].index(name)}"].add(torch.float32)
    return kernel


@pytest.fixture(autouse=True)
def _torch_of_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """This torch has no ROCm: its version, the functions that launches ask, and empty() on a device."""
    monkeypatch.setattr(torch.version, "hip", "7.0.2")
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: STREAM + device, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    for name in ("empty", "zeros"):
        monkeypatch.setattr(torch, name, _on_device(getattr(torch, name)))


def _on_device(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, device: Any = None, **more: Any) -> Any:
        return make(*args, **more) if device is None else make(*args, **more).as_subclass(OnDevice)

    return made


def test_a_call_packs_grid_block_stream_and_arguments() -> None:
    hip = RecordingHip()
    kernel, a, b, c = loaded(hip, launch={"shared": 4096}), *(tensor(1000) for _ in "abc")
    assert kernel(a, b, 2.5, c) is c
    (launch,) = hip.launched
    assert (launch.grid, launch.block, launch.shared, launch.stream) == ((8, 1, 1), (128, 1, 1), 4096, STREAM)
    assert launch.function == "add_kernel on 0"
    assert launch.arguments == struct.pack("<3Qif", a.data_ptr(), b.data_ptr(), c.data_ptr(), 1000, 2.5)
    assert hip.loaded == [(0, OBJECT)]


def test_the_fast_path_recognises_the_call() -> None:
    kernel = loaded(RecordingHip())
    kernel._namespace["slow"] = lambda args: pytest.fail("the common call went the slow way")
    kernel(tensor(64), tensor(64), 1.0, tensor(64))
    kernel(tensor(64), tensor(64), 1.0)


def test_the_binary_is_loaded_once_and_nothing_is_asked_twice() -> None:
    hip = RecordingHip()
    kernel, args = loaded(hip), (tensor(64), tensor(64), 1.0, tensor(64))
    kernel(*args)
    first = len(hip.calls)
    assert hip.calls.count("hipModuleLoadData") == hip.calls.count("hipModuleGetFunction") == 1
    kernel(*args)
    kernel.prepare(*args)(args[0], args[1], args[3])
    assert hip.calls[first:] == ["hipModuleLaunchKernel"] * 2  # no synchronization, no allocation: a graph can hold it
    del kernel
    gc.collect()
    assert hip.calls[-1] == "hipModuleUnload"


def test_outputs_left_out_come_from_torch() -> None:
    hip = RecordingHip()
    c = loaded(hip)(tensor(64), tensor(64), 1.0)
    assert isinstance(c, OnDevice)
    assert struct.unpack_from("<Q", hip.launched[0].arguments, 16) == (c.data_ptr(),)


def test_arguments_lie_where_the_kernel_expects_them() -> None:
    hip = RecordingHip()
    args = [["value", "int8", 3], ["param", "A"], ["value", "bool", 1], ["value", "int64", -5], ["param", "s"]]
    kernel = loaded(hip, scalar="bfloat16", launch={"args": args})
    a = tensor(64)
    kernel(a, tensor(64), 1.5, tensor(64))
    assert hip.launched[0].arguments == struct.pack("<b7xQ?7xqH", 3, a.data_ptr(), True, -5, 0x3FC0)


def test_more_lds_than_the_device_has() -> None:
    kernel = loaded(RecordingHip(), launch={"shared": 80_000})
    with pytest.raises(DeviceUnavailable, match=r"needs 80000 bytes of shared memory; a block on device 0 \(gfx942\)"):
        kernel(tensor(64), tensor(64), 1.0)


def test_each_device_has_its_own_module(monkeypatch: pytest.MonkeyPatch) -> None:
    hip, entered = RecordingHip(), list[int]()

    class Guard:
        def __init__(self, device: int) -> None:
            self.number = device

        def __enter__(self) -> None:
            entered.append(self.number)

        def __exit__(self, *_: Any) -> None:
            entered.append(-1)

    monkeypatch.setattr(torch.cuda, "device", Guard)
    on_second = [tensor(64, kind=OnSecond) for _ in range(3)]
    kernel = loaded(hip)
    kernel(tensor(64), tensor(64), 1.0)
    kernel(on_second[0], on_second[1], 1.0, on_second[2])
    assert entered == [1, -1]
    assert [launch.function for launch in hip.launched] == ["add_kernel on 0", "add_kernel on 1"]
    assert [launch.stream for launch in hip.launched] == [STREAM, STREAM + 1]
    assert [device for device, _ in hip.loaded] == [0, 1]
    assert hip.current == 0  # the caller's device is restored
    scratch = loaded(hip, workspace=[{"bytes": 64, "zero": False}])
    with pytest.raises(ArgumentDeviceError, match=r"inside torch.cuda.device\(1\)"):
        scratch(on_second[0], on_second[1], 1.0, on_second[2])


def test_scratch_memory_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    hip = RecordingHip()
    workspace = [{"bytes": ["dim", "n"], "zero": True, "align": 256}]
    kernel = loaded(hip, workspace=workspace, launch={"args": [["workspace", 0]]})
    kernel(tensor(64), tensor(64), 1.0)
    (address,) = struct.unpack("<Q", hip.launched[0].arguments)
    assert address % 256 == 0
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(OutputError, match="torch allocates"):
        kernel.backend.workspace(64, False, 16)


@pytest.mark.parametrize(
    ("args", "error", "said"),
    [
        ((torch.zeros(64), torch.zeros(64), 1.0), ArgumentDeviceError, "expected to be rocm"),
        ((tensor(64), tensor(65), 1.0), ArgumentShapeError, "B"),
        ((tensor(64), tensor(64, kind=OnSecond), 1.0), ArgumentDeviceError, ":1"),
    ],
)
def test_wrong_arguments_never_reach_the_runtime(args: tuple[Any, ...], error: type[Exception], said: str) -> None:
    hip = RecordingHip()
    with pytest.raises(error, match=said):
        loaded(hip)(*args)
    assert hip.launched == []


def test_checks_and_empty_grids() -> None:
    hip = RecordingHip()
    kernel = loaded(hip, checks=[{"expr": ["<", ["dim", "n"], 100], "code": "C", "message": "n is small"}])
    with pytest.raises(CheckFailed, match="n is small"):
        kernel(tensor(128), tensor(128), 1.0)
    kernel(tensor(0), tensor(0), 1.0)
    assert hip.launched == []


def test_a_refused_launch_says_what_was_asked() -> None:
    hip = RecordingHip()
    kernel = loaded(hip)
    hip.fail["hipModuleLaunchKernel"] = [1]
    with pytest.raises(LaunchError, match=r"grid \(1, 1, 1\), block \(128, 1, 1\), 0 bytes.*: invalid argument \(1\)"):
        kernel(tensor(64), tensor(64), 1.0)


def test_threads_do_not_share_a_slot() -> None:
    hip = RecordingHip()
    kernel = loaded(hip)
    inputs = [tensor(64 * (i + 1)) for i in range(4)]
    threads = [threading.Thread(target=lambda a=a: [kernel(a, a, 1.0, a) for _ in range(200)]) for a in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sizes = {a.data_ptr(): len(a) for a in inputs}
    assert len(hip.launched) == 800
    for launch in hip.launched:
        pointer, _, _, n, _ = struct.unpack("<3Qif", launch.arguments)
        assert sizes[pointer] == n


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target": {"kind": "cuda", "arch": "sm_80"}}, "compiled for cuda, not for HIP"),
        ({"binaries": [{"file": "k.hsaco", "kind": "elf"}]}, "of kind elf; HIP launches code objects"),
        ({"scalar": "float8_e4m3fn"}, "take no scalar of type float8_e4m3fn"),
        (
            {
                "tensormaps": [{"param": "A", "dtype": "float32", "box": [32]}],
                "launch": {"args": [["tensormap", 0]]},
            },
            "tensor maps",
        ),
        ({"launch": {"cluster": [2, 1, 1]}}, "asks for a cluster launch"),
        ({"launch": {"cooperative": True}}, "asks for a cooperative launch"),
        ({"launch": {"pdl": True}}, "asks for a pdl launch"),
    ],
)
def test_artifacts_that_cannot_be_loaded(change: dict[str, Any], said: str) -> None:
    with pytest.raises(LoadError, match=said):
        loaded(RecordingHip(), **change)


def test_a_refused_binary_and_an_absent_device() -> None:
    hip = RecordingHip()
    hip.fail["hipModuleLoadData"] = [1]
    with pytest.raises(
        LoadError, match=r"add_kernel of k.hsaco \(for gfx942\): the HIP runtime refused hipModuleLoadData"
    ):
        loaded(hip)(tensor(64), tensor(64), 1.0)
    assert hip.current == 0
    with pytest.raises(DeviceUnavailable, match="offers no device"):
        loaded(RecordingHip(devices=0))
    with pytest.raises(DeviceUnavailable, match="was compiled for gfx942, device 0 is gfx90a: compile it for that"):
        loaded(RecordingHip(arch="gfx90a"))(tensor(64), tensor(64), 1.0)


def test_profile_measures_with_events() -> None:
    hip = RecordingHip()
    hooks = profile.hooks(Runtime(hip))
    assert hooks.cache_bytes == 4 << 20
    assert hooks.time(lambda: None, 3) == [pytest.approx(0.5e-3)] * 3
    assert hip.calls.count("hipEventCreate") == hip.calls.count("hipEventDestroy") == 4


def test_cold_calls_are_measured_without_what_empties_the_cache() -> None:
    hip = RecordingHip()
    hooks = profile.hooks(Runtime(hip))
    order: list[str] = []

    def call() -> None:
        order.extend(hip.calls)
        hip.calls.clear()

    assert hooks.time_cold is not None
    assert hooks.time_cold(call, 3) == [pytest.approx(0.5e-3)] * 3
    assert hip.filled == [2 * hooks.cache_bytes] * 3
    # Before each call: overwritten first, then the event from which time counts.
    marks = [name for name in order if name in ("hipMemsetAsync", "hipEventRecord")]
    assert marks == ["hipMemsetAsync", "hipEventRecord"] + ["hipEventRecord", "hipMemsetAsync", "hipEventRecord"] * 2
    assert hip.calls.count("hipFree") == 1
    assert hip.calls.count("hipEventDestroy") == 6


def test_a_call_without_a_gpu_names_the_ways_to_run_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "TOPOLOGY", tmp_path / "absent")
    artifact = Artifact(Manifest.from_json(add_manifest()), {"k.hsaco": OBJECT})
    with pytest.raises(
        DeviceUnavailable, match=r"no AMD GPU.*TILELANG_EXECUTION=emulate.*TILELANG_TARGET_OVERRIDE=cpu"
    ):
        plugin.RocmDevice().load(artifact)


# -- hip-python itself -------------------------------------------------------------------------------------------------


def test_the_binding_has_what_is_called_and_fails_at_the_first_call_without_rocm() -> None:
    hip = importlib.import_module("hip").hip
    used = [name for name in dir(RecordingHip) if name.startswith("do_hip")]
    assert all(hasattr(hip, name.removeprefix("do_")) for name in used)
    assert [int(getattr(hip.hipDeviceAttribute_t, a.name)) for a in list(RecordingHip.hipDeviceAttribute_t)] == [74, 19]
    assert not hip.hipError_t.hipSuccess  # the launcher asks `if rc`
    if driver.runtime_version() is None:
        with pytest.raises(HipError, match="the HIP runtime cannot be opened"):
            Runtime().device_count()


def test_without_the_binding_its_installation_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "hip", None)
    with pytest.raises(HipError, match=r"pip install 'tile-runtime-rocm\[hip\]'"):
        Runtime()
