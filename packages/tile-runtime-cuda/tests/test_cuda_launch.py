"""The launcher against a driver that records: what it passes, when it asks, how it fails."""

from __future__ import annotations

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
    TensorMapError,
)
from tile_runtime.manifest import Manifest
from tile_runtime.packed_arguments import narrow_bits
from tile_runtime_cuda import plugin, profile
from tile_runtime_cuda.driver import Driver, DriverError
from tile_runtime_cuda.launch import LaunchError, compiles_for, load, runs_on

from .fake_cuda import OnDevice, OnSecond, RecordingDriver, tensor

STREAM = 0x5EED


def add_manifest(**more: Any) -> dict[str, Any]:
    """`add(A[n], B[n], s) -> C[n]`."""
    vector = {"kind": "tensor", "dtype": "float32", "shape": [["dim", "n"]]}
    launch = {
        "binary": "k.cubin",
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
        "target": {"kind": "cuda", "arch": "sm_90a"},
        "params": [
            {"name": "A", **vector, "access": "r", "align": 16},
            {"name": "B", **vector, "access": "r"},
            {"name": "s", "kind": "scalar", "dtype": more.pop("scalar", "float32"), "shape": []},
            {"name": "C", **vector, "access": "w"},
        ],
        "dims": [{"name": "n", "param": "A", "axis": 0}],
        "outputs": ["C"],
        "variants": [{"guard": None, "launches": [launch]}],
        "binaries": [{"file": "k.cubin", "kind": "cubin"}],
        **more,
    }


def loaded(library: RecordingDriver, **more: Any) -> Any:
    kernel = load(Artifact(Manifest.from_json(add_manifest(**more)), {"k.cubin": b"\x7fELF"}), Driver(library))
    kernel._namespace["torch_types"].update((OnDevice, OnSecond))  # as if these were torch.Tensor itself
    for name in ("A", "B", "C"):
        kernel._namespace[f"td{['A', 'B', 's', 'C'].index(name)}"].add(torch.float32)
    return kernel


@pytest.fixture(autouse=True)
def _torch_with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """This torch has no CUDA: the functions that launches ask, and empty() on a device."""
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: STREAM + device, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    for name in ("empty", "zeros"):
        monkeypatch.setattr(torch, name, _on_device(getattr(torch, name)))


def _on_device(make: Callable[..., Any]) -> Callable[..., Any]:
    def made(*args: Any, device: Any = None, **more: Any) -> Any:
        return make(*args, **more) if device is None else make(*args, **more).as_subclass(OnDevice)

    return made


@pytest.mark.parametrize("devices", [1, 2])
def test_a_call_packs_grid_block_stream_and_arguments(devices: int) -> None:
    library = RecordingDriver(devices=devices)
    library.argument_count = 5
    kernel, a, b, c = loaded(library), *(tensor(1000) for _ in "abc")
    assert kernel(a, b, 2.5, c) is c
    (launch,) = library.launched
    assert (launch.grid, launch.block, launch.shared, launch.stream) == ((8, 1, 1), (128, 1, 1), 0, STREAM)
    assert launch.kernel == library.kernels["add_kernel"]
    assert launch.attributes == b""
    pointers = (a.data_ptr(), b.data_ptr(), c.data_ptr())
    assert launch.holds(struct.pack("<3Qif", *pointers, 1000, 2.5))
    assert launch.places == [0, 8, 16, 24, 28]


@pytest.mark.parametrize("devices", [1, 2])
def test_the_fast_path_recognises_the_call(devices: int) -> None:
    kernel = loaded(RecordingDriver(devices=devices))
    kernel._namespace["slow"] = lambda args: pytest.fail("the common call went the slow way")
    kernel(tensor(64), tensor(64), 1.0, tensor(64))
    kernel(tensor(64), tensor(64), 1.0)


def test_the_binary_is_loaded_once_and_nothing_is_asked_twice() -> None:
    library = RecordingDriver()
    kernel, args = loaded(library), (tensor(64), tensor(64), 1.0, tensor(64))
    kernel(*args)
    first = len(library.calls)
    assert library.calls.count("cuLibraryLoadData") == library.calls.count("cuLibraryGetKernel") == 1
    kernel(*args)
    kernel.prepare(*args)(args[0], args[1], args[3])
    assert library.calls[first:] == ["cuLaunchKernelEx"] * 2  # no synchronization, no allocation: a graph can hold it


def test_outputs_left_out_come_from_torch() -> None:
    library = RecordingDriver()
    c = loaded(library)(tensor(64), tensor(64), 1.0)
    assert isinstance(c, OnDevice)
    assert struct.unpack_from("<Q", library.launched[0].arguments, 16) == (c.data_ptr(),)


def test_arguments_lie_where_the_kernel_expects_them() -> None:
    library = RecordingDriver()
    args = [["value", "int8", 3], ["param", "A"], ["value", "bool", 1], ["value", "int64", -5], ["param", "s"]]
    kernel = loaded(library, scalar="bfloat16", launch={"args": args})
    a = tensor(64)
    kernel(a, tensor(64), 1.5, tensor(64))
    expected = struct.pack("<b7xQ?7xqH", 3, a.data_ptr(), True, -5, 0x3FC0)
    assert library.launched[0].holds(expected)


@pytest.mark.parametrize(
    ("dtype", "value", "bits"),
    [
        ("float16", 1.5, 0x3E00),
        ("float16", 1e9, 0x7C00),
        ("bfloat16", 1.00390625, 0x3F80),
        ("bfloat16", float("nan"), 0x7FFF),
    ],
)
def test_narrow_scalars(dtype: str, value: float, bits: int) -> None:
    assert narrow_bits(dtype, value) == bits


def test_large_shared_memory_is_asked_for_once_per_device() -> None:
    library = RecordingDriver()
    kernel = loaded(library, launch={"shared": 100_000})
    for _ in range(2):
        kernel(tensor(64), tensor(64), 1.0)
    assert library.allowed == [(library.kernels["add_kernel"], 100_000, 0)]
    assert library.launched[0].shared == 100_000


def test_shared_memory_that_depends_on_the_call_is_allowed_up_to_the_limit() -> None:
    library = RecordingDriver()
    loaded(library, launch={"shared": ["*", ["dim", "n"], 4]})(tensor(64), tensor(64), 1.0)
    assert library.allowed == [(library.kernels["add_kernel"], library.shared_limit, 0)]


def test_more_shared_memory_than_the_device_has() -> None:
    kernel = loaded(RecordingDriver(shared_limit=99 << 10), launch={"shared": 200_000})
    with pytest.raises(DeviceUnavailable, match="needs 200000 bytes of shared memory; a block on device 0"):
        kernel(tensor(64), tensor(64), 1.0)


def test_attributes_of_clusters_and_cooperative_launches() -> None:
    library = RecordingDriver()
    loaded(library, launch={"cluster": [2, 1, 1], "cooperative": True, "pdl": True})(tensor(64), tensor(64), 1.0)
    words = struct.unpack("<I4xi60xI4x3I52xI4xi60x", library.launched[0].attributes)
    assert words == (2, 1, 4, 2, 1, 1, 6, 1)


def test_another_device_than_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    library, entered = RecordingDriver(), list[int]()

    class Guard:
        def __init__(self, device: int) -> None:
            self.number = device

        def __enter__(self) -> None:
            entered.append(self.number)

        def __exit__(self, *_: Any) -> None:
            entered.append(-1)

    monkeypatch.setattr(torch.cuda, "device", Guard)
    on_second = [tensor(64, kind=OnSecond) for _ in range(3)]
    loaded(library)(on_second[0], on_second[1], 1.0, on_second[2])
    assert entered == [1, -1]
    assert library.launched[0].stream == STREAM + 1
    scratch = loaded(library, workspace=[{"bytes": 64, "zero": False}])
    with pytest.raises(ArgumentDeviceError, match=r"inside torch.cuda.device\(1\)"):
        scratch(on_second[0], on_second[1], 1.0, on_second[2])


def test_scratch_memory_is_torchs() -> None:
    library = RecordingDriver()
    launch = {"args": [["workspace", 0]]}
    loaded(library, workspace=[{"bytes": ["dim", "n"], "zero": True, "align": 256}], launch=launch)(
        tensor(64), tensor(64), 1.0
    )
    (address,) = struct.unpack("<Q", library.launched[0].arguments)
    assert address % 256 == 0


@pytest.mark.parametrize(
    ("args", "error", "said"),
    [
        ((torch.zeros(64), torch.zeros(64), 1.0), ArgumentDeviceError, "expected to be cuda"),
        ((tensor(64), tensor(65), 1.0), ArgumentShapeError, "B"),
        ((tensor(64), tensor(64, kind=OnSecond), 1.0), ArgumentDeviceError, "cuda:1"),
    ],
)
def test_wrong_arguments_never_reach_the_driver(args: tuple[Any, ...], error: type[Exception], said: str) -> None:
    library = RecordingDriver()
    with pytest.raises(error, match=said):
        loaded(library)(*args)
    assert library.launched == []


def test_checks_and_empty_grids() -> None:
    library = RecordingDriver()
    kernel = loaded(library, checks=[{"expr": ["<", ["dim", "n"], 100], "code": "C", "message": "n is small"}])
    with pytest.raises(CheckFailed, match="n is small"):
        kernel(tensor(128), tensor(128), 1.0)
    kernel(tensor(0), tensor(0), 1.0)
    assert library.launched == []


def test_a_refused_launch_says_what_was_asked() -> None:
    library = RecordingDriver()
    kernel = loaded(library)
    library.fail["cuLaunchKernelEx"] = [1]
    with pytest.raises(LaunchError, match=r"grid \(1, 1, 1\), block \(128, 1, 1\), 0 bytes.*: invalid argument \(1\)"):
        kernel(tensor(64), tensor(64), 1.0)


def test_a_cooperative_launch_of_too_many_blocks() -> None:
    library = RecordingDriver()
    kernel = loaded(library, launch={"cooperative": True})
    library.fail["cuLaunchKernelEx"] = [720]
    with pytest.raises(LaunchError, match=r"\(720\); T.sync_grid needs all blocks to run at once: launch fewer"):
        kernel(tensor(64), tensor(64), 1.0)


def test_a_thread_without_a_context_gets_the_devices_own() -> None:
    library = RecordingDriver()
    kernel = loaded(library)
    library.fail["cuLaunchKernelEx"] = [201]
    kernel(tensor(64), tensor(64), 1.0)
    assert library.calls[-4:] == ["cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuLaunchKernelEx"]


def test_threads_do_not_share_a_slot() -> None:
    library = RecordingDriver()
    kernel = loaded(library)
    inputs = [tensor(64 * (i + 1)) for i in range(4)]

    def work(a: Any) -> None:
        for _ in range(200):
            kernel(a, a, 1.0, a)

    threads = [threading.Thread(target=work, args=(a,)) for a in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sizes = {a.data_ptr(): len(a) for a in inputs}
    assert len(library.launched) == 800
    for launch in library.launched:
        pointer, _, _, n, _ = struct.unpack("<3Qif", launch.arguments)
        assert sizes[pointer] == n


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"target": {"kind": "cpu", "arch": ""}}, LoadError, "compiled for cpu"),
        ({"min_driver": 14000}, DeviceUnavailable, "needs a driver for CUDA 14.0; this one supports 13.0"),
        ({"binaries": [{"file": "k.cubin", "kind": "elf"}]}, LoadError, "of kind elf; CUDA launches cubins"),
        ({"scalar": "float8_e4m3fn"}, LoadError, "take no scalar of type float8_e4m3fn"),
        ({"launch": {"cluster": [["dim", "n"], 1, 1]}}, Exception, "cluster"),
    ],
)
def test_artifacts_that_cannot_be_loaded(change: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        loaded(RecordingDriver(), **change)


def test_a_refused_binary_and_an_absent_device() -> None:
    library = RecordingDriver()
    library.fail["cuLibraryLoadData"] = [200]
    with pytest.raises(LoadError, match=r"add_kernel of k.cubin \(for sm_90a\): the CUDA driver refused"):
        loaded(library)
    with pytest.raises(DeviceUnavailable, match="offers no device"):
        loaded(RecordingDriver(devices=0))


def test_devices_of_other_architectures() -> None:
    """No device that fits: the driver would refuse the binary, and is not asked. One that fits is enough to load."""
    library = RecordingDriver(capability=(8, 0))
    with pytest.raises(DeviceUnavailable, match="was compiled for sm_90a, device 0 is sm_80: compile it for that"):
        loaded(library)
    assert "cuLibraryLoadData" not in library.calls
    library.capabilities[1] = (9, 0)
    kernel = loaded(library)
    with pytest.raises(DeviceUnavailable, match="was compiled for sm_90a, device 0 is sm_80: compile it for that"):
        kernel(tensor(64), tensor(64), 1.0)


@pytest.mark.parametrize(
    ("binary", "found", "runs"),
    [
        ("sm_80", "sm_86", True),
        ("sm_86", "sm_80", False),
        ("sm_80", "sm_90a", False),
        ("sm_90", "sm_90a", True),
        ("sm_90a", "sm_90a", True),
        ("sm_100", "sm_103a", True),
        ("sm_100a", "sm_103a", False),
    ],
)
def test_which_binary_runs_where(binary: str, found: str, runs: bool) -> None:
    assert runs_on(binary, found) is runs


@pytest.mark.parametrize(
    ("ptx", "found", "compiles"),
    [
        ("sm_89", "sm_90a", True),
        ("sm_89", "sm_120a", True),
        ("sm_89", "sm_89", True),
        ("sm_89", "sm_86", False),
        ("sm_90a", "sm_100a", False),
    ],
)
def test_which_ptx_compiles_for_which_device(ptx: str, found: str, compiles: bool) -> None:
    assert compiles_for(ptx, found) is compiles


@pytest.mark.parametrize(
    ("capability", "given"), [((8, 9), b"\x7fELF"), ((8, 0), b"\x7fELF"), ((12, 0), b".version 9.5\0")]
)
def test_ptx_goes_to_a_newer_device_alone(capability: tuple[int, int], given: bytes) -> None:
    binaries = [{"file": "k.cubin", "kind": "cubin"}, {"file": "k.ptx", "kind": "ptx"}]
    manifest = add_manifest(binaries=binaries, target={"kind": "cuda", "arch": "sm_89"})
    artifact = Artifact(Manifest.from_json(manifest), {"k.cubin": b"\x7fELF", "k.ptx": b".version 9.5\0"})
    library, read = RecordingDriver(capability=capability, devices=2), []
    library.capabilities[1] = (8, 9)
    library.do_cuLibraryLoadData = lambda out, code, *rest: (
        read.append(code.value),
        setattr(out._obj, "value", 0x1000),
    )
    kernel = load(artifact, Driver(library))
    assert read == [given.rstrip(b"\0")]
    if capability == (8, 0):
        with pytest.raises(DeviceUnavailable, match="was compiled for sm_89, device 0 is sm_80"):
            kernel(tensor(64), tensor(64), 1.0)
    else:
        kernel(tensor(64), tensor(64), 1.0)
        assert len(library.launched) == 1


def test_a_call_without_a_gpu_names_the_ways_to_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", absent)
    artifact = Artifact(Manifest.from_json(add_manifest()), {"k.cubin": b"\x7fELF"})
    with pytest.raises(DeviceUnavailable, match=r"TILELANG_EXECUTION=emulate.*\n?.*TILELANG_TARGET_OVERRIDE=cpu"):
        plugin.CudaDevice().load(artifact)


def test_scratch_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = loaded(RecordingDriver())
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(OutputError, match="torch allocates"):
        kernel.backend.workspace(64, False, 16)


def test_profile_measures_with_events() -> None:
    library = RecordingDriver()
    hooks = profile.hooks(Driver(library))
    assert hooks.cache_bytes == 50 << 20
    assert hooks.time(lambda: None, 3) == [pytest.approx(0.5e-3)] * 3
    assert library.calls.count("cuEventCreate") == library.calls.count("cuEventDestroy_v2") == 4


def test_cold_calls_are_measured_without_what_empties_the_cache() -> None:
    library = RecordingDriver()
    hooks = profile.hooks(Driver(library))
    order: list[str] = []

    def call() -> None:
        order.extend(library.calls)
        library.calls.clear()

    assert hooks.time_cold is not None
    assert hooks.time_cold(call, 3) == [pytest.approx(0.5e-3)] * 3
    assert library.filled == [2 * hooks.cache_bytes] * 3
    # Before each call: overwritten first, then the event from which time counts.
    marks = [name for name in order if name in ("cuMemsetD8Async", "cuEventRecord")]
    assert marks == ["cuMemsetD8Async", "cuEventRecord"] + ["cuEventRecord", "cuMemsetD8Async", "cuEventRecord"] * 2
    assert library.calls.count("cuMemFree_v2") == 1
    assert library.calls.count("cuEventDestroy_v2") == 6


def map_manifest(**more: Any) -> dict[str, Any]:
    """`k(map of X[m, n], s, map of Y)`: Y's map is the same memory as three dimensions."""
    tensor = {"kind": "tensor", "dtype": "float16", "shape": [["dim", "m"], ["dim", "n"]], "align": 16}
    folded = {
        "shape": [64, ["dim", "m"], ["floordiv", ["dim", "n"], 64]],
        "strides": [["dim", "n"], 64],
    }
    args = [["value", "int8", 7], ["tensormap", 0], ["value", "int32", ["dim", "n"]], ["tensormap", 1], ["param", "X"]]
    launch = {"binary": "k.cubin", "symbol": "k", "grid": [1, 1, 1], "block": [128, 1, 1], "args": args}
    return {
        "format": 1,
        "name": "k",
        "target": {"kind": "cuda", "arch": "sm_90a"},
        "params": [{"name": "X", **tensor, "access": "r"}, {"name": "Y", **tensor, "access": "rw"}],
        "dims": [{"name": "m", "param": "X", "axis": 0}, {"name": "n", "param": "X", "axis": 1}],
        "tensormaps": [
            {"param": "X", "dtype": "float16", "box": [64, 128], "swizzle": 128, "l2_promotion": 256},
            {
                "param": "Y",
                "dtype": "float16",
                "box": [64, 32, 2],
                **folded,
                "element_strides": [1, 2, 1],
                "fill": "nan",
            },
        ],
        "variants": [{"guard": None, "launches": [launch]}],
        "binaries": [{"file": "k.cubin", "kind": "cubin"}],
        **more,
    }


def loaded_with_maps(library: RecordingDriver, **more: Any) -> Any:
    kernel = load(Artifact(Manifest.from_json(map_manifest(**more)), {"k.cubin": b"\x7fELF"}), Driver(library))
    kernel._namespace["torch_types"].add(OnDevice)
    for i in range(2):
        kernel._namespace[f"td{i}"].add(torch.float16)
    return kernel


def test_tensor_maps_are_made_by_the_driver_and_passed_by_value() -> None:
    library = RecordingDriver()
    library.argument_count = 5
    kernel = loaded_with_maps(library)
    x, y = (tensor(256, 192, dtype=torch.float16) for _ in "xy")
    kernel(x, y)
    first = (6, 2, x.data_ptr(), [192, 256], [384], [64, 128], [1, 1], 0, 3, 3, 0)
    second = (6, 3, y.data_ptr(), [64, 256, 3], [384, 128], [64, 32, 2], [1, 2, 1], 0, 0, 2, 1)
    assert library.encoded == [first, second]
    expected = struct.pack("<b63x128si60x128sQ", 7, b"\1" * 128, 192, b"\2" * 128, x.data_ptr())
    assert library.launched[0].holds(expected)
    assert library.launched[0].places == [0, 64, 192, 256, 384]


def test_calls_with_the_same_tensors_find_their_maps_again() -> None:
    library = RecordingDriver()
    kernel = loaded_with_maps(library)
    x, y, z = (tensor(256, 192, dtype=torch.float16) for _ in "xyz")
    kernel(x, y)
    prepared = kernel.prepare(x, y)
    prepared(x, y)
    kernel(x, y)
    assert len(library.encoded) == 2
    prepared(z, y)
    assert [e[2] for e in library.encoded[2:]] == [z.data_ptr()]
    assert library.launched[-1].arguments[64:192] == b"\3" * 128


def test_maps_in_a_thread_without_a_context() -> None:
    """As that of torch's gradients, whose first work may be ours."""
    library = RecordingDriver()
    kernel = loaded_with_maps(library)
    library.fail["cuTensorMapEncodeTiled"] = [201]
    kernel(*(tensor(256, 192, dtype=torch.float16) for _ in "xy"))
    assert len(library.encoded) == 2
    assert len(library.launched) == 1
    refused = library.calls.index("cuTensorMapEncodeTiled")
    again = library.calls.index("cuTensorMapEncodeTiled", refused + 1)
    assert library.calls[again - 2 : again] == ["cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"]
    library.fail["cuTensorMapEncodeTiled"] = [1]
    with pytest.raises(DriverError, match=r"refused cuTensorMapEncodeTiled: invalid argument \(1\)"):
        kernel(*(tensor(128, 192, dtype=torch.float16) for _ in "xy"))


def test_a_tensor_that_no_map_can_describe() -> None:
    library = RecordingDriver()
    kernel = loaded_with_maps(library)
    with pytest.raises(TensorMapError) as caught:
        kernel(*(tensor(256, 60, dtype=torch.float16) for _ in "xy"))
    assert str(caught.value) == (
        "TLR025: the tensor map of X: strides of (120,) bytes; expected multiples of 16 bytes below 2^40. Make the tensor "
        "contiguous with padded rows, or copy it without the tensor memory accelerator."
    )
    assert library.launched == []
