"""The native entry beside the Python launcher: the same launches for every call, and Python for what it does not know.

Tensors lie in host memory and the driver records. The native code is told that host memory is its device; the Python
launcher gets the same tensors as a class that says so.
"""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tile_compiler.compile import with_native_entry
from tile_runtime import native
from tile_runtime.artifact import Artifact
from tile_runtime.errors import ArgumentShapeError, LoadError
from tile_runtime.manifest import Manifest
from tile_runtime.native_interface import State
from tile_runtime_cuda.driver import Driver
from tile_runtime_cuda.launch import load

from .fake_cuda import OnDevice, RecordingDriver

KDL_CPU = 1
pytestmark = pytest.mark.skipif(not native.is_usable(), reason="native entries are for x86-64 Linux and CPython")


def manifest(params: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    launch = {"binary": "k.cubin", "symbol": "k", "grid": [1, 1, 1], "block": [32, 1, 1], "shared": 0}
    launch["args"] = [["param", p["name"]] for p in params] + more.pop("values", [])
    launch |= more.pop("launch", {})
    return {
        "format": 1,
        "name": "k",
        "target": {"kind": "cuda", "arch": "sm_90a"},
        "params": params,
        "variants": [{"guard": None, "launches": [launch]}],
        "binaries": [{"file": "k.cubin", "kind": "cubin"}],
        **more,
    }


def tensor(name: str, dtype: str, shape: list[Any], access: str = "rw", **more: Any) -> dict[str, Any]:
    return {"name": name, "kind": "tensor", "dtype": dtype, "shape": shape, "access": access, **more}


def scalar(name: str, dtype: str) -> dict[str, Any]:
    return {"name": name, "kind": "scalar", "dtype": dtype, "shape": []}


class Both:
    """A kernel, its native function, and what the native function handed on to Python."""

    def __init__(self, data: dict[str, Any], devices: int = 1) -> None:
        artifact = with_native_entry(Artifact(Manifest.from_json(data), {"k.cubin": b"\x7fELF"}))
        self.driver = RecordingDriver(devices=devices)
        self.kernel = load(artifact, Driver(self.driver))
        self.handed_on: list[tuple[Any, ...]] = []
        entry = self.kernel._native
        assert entry is not None
        self.entry = entry
        entry._table[State.DEVICE_TYPE] = KDL_CPU
        for number in range(sum(len(v.launches) for v in self.kernel.manifest.variants)):
            entry.set_ready(number, 0)
        self.native = entry.launch(self._hand_on)

    def _hand_on(self, *args: Any) -> str:
        self.handed_on.append(args)
        return "from Python"

    def agree(self, *args: Any) -> Any:
        """Call both ways; the recorded launches must be equal, and the native call must need no help."""
        self.driver.launched.clear()
        result = self.native(*args)
        assert not self.handed_on
        mine = [self._shown(launch) for launch in self.driver.launched]
        self.driver.launched.clear()
        self.kernel._namespace["launch"](*(a.as_subclass(OnDevice) if type(a) is torch.Tensor else a for a in args))
        assert mine == [self._shown(launch) for launch in self.driver.launched]
        return result

    @staticmethod
    def _shown(launch: Any) -> tuple[Any, ...]:
        return launch.grid, launch.block, launch.shared, launch.kernel, launch.attributes, launch.arguments

    def hands_on(self, *args: Any) -> None:
        """The call is Python's, with exactly these arguments; nothing is launched before."""
        self.driver.launched.clear()
        self.handed_on.clear()
        assert self.native(*args) == "from Python"
        assert len(self.handed_on) == 1
        assert all(a is b for a, b in zip(self.handed_on[0], args, strict=True))
        assert not self.driver.launched
        self.handed_on.clear()


@pytest.fixture(autouse=True)
def _torch_with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)


GEMM = manifest(
    [
        tensor("A", "float16", [["dim", "m"], ["dim", "k"]], "r"),
        tensor("B", "float16", [["dim", "k"], ["dim", "n"]], "r"),
        tensor("C", "float32", [["dim", "m"], ["dim", "n"]], "w"),
    ],
    dims=[
        {"name": "m", "param": "A", "axis": 0},
        {"name": "k", "param": "A", "axis": 1},
        {"name": "n", "param": "B", "axis": 1},
    ],
    values=[["value", "int32", ["dim", d]] for d in "mnk"],
    launch={
        "grid": [["ceildiv", ["dim", "n"], 128], ["ceildiv", ["dim", "m"], 96], 1],
        "shared": ["*", ["min", ["dim", "k"], 64], 3],
    },
    outputs=["C"],
)


def operands(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    half = torch.float16
    return torch.zeros(m, k, dtype=half), torch.zeros(k, n, dtype=half), torch.zeros(m, n)


def test_shapes_give_dims_grids_and_arguments() -> None:
    gemm = Both(GEMM)
    rng = np.random.default_rng(0)
    for _ in range(50):
        args = operands(*(int(x) for x in rng.integers(1, 700, 3)))
        assert gemm.agree(*args) is args[2]


def test_what_does_not_fit_goes_to_python() -> None:
    gemm = Both(GEMM)
    a, b, c = operands(64, 32, 16)
    gemm.agree(a, b, c)
    gemm.hands_on(a, b)  # Python allocates
    gemm.hands_on()
    gemm.hands_on(a, b, c, c)
    gemm.hands_on(a.float(), b, c)
    gemm.hands_on(a.bfloat16(), b, c)
    gemm.hands_on(a, b[1:], c)
    gemm.hands_on(a, b.t().contiguous().t(), c)  # the same shape in another order
    gemm.hands_on(a[0], b, c)
    gemm.hands_on(a, b, c[:, :31])
    gemm.hands_on(a.numpy(), b, c)
    gemm.hands_on(a, b, None)
    gemm.hands_on(a, 3, c)
    gemm.hands_on(a.as_subclass(OnDevice), b, c)
    gemm.hands_on(a.to("meta"), b, c)
    gemm.native(torch.nn.Parameter(a), b, c)
    assert not gemm.handed_on  # a parameter is a tensor too


def test_python_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: the kernel's own function, native first, then the complete check."""
    gemm = Both(GEMM)
    a, b, c = (x.as_subclass(OnDevice) for x in operands(64, 32, 16))
    with pytest.raises(ArgumentShapeError, match=r"Argument k\.B\.shape\[0\] has an unsatisfied constraint: 15 == k"):
        gemm.kernel(a, b[1:], c)
    assert not gemm.driver.launched
    gemm.kernel(a, b, c)
    assert len(gemm.driver.launched) == 1


EXPRESSIONS = [
    ["+", ["dim", "n"], 3, ["*", ["dim", "n"], 2]], ["-", 5, ["dim", "n"]], ["max", ["dim", "n"], 17, ["param", "s"]],
    ["min", ["param", "s"], ["dim", "n"]], ["floordiv", ["param", "s"], 7], ["floormod", ["param", "s"], 7],
    ["floordiv", ["param", "s"], 8], ["floormod", ["param", "s"], 8], ["ceildiv", ["param", "s"], 6],
    ["ceildiv", ["param", "s"], 4], ["==", ["param", "s"], -3], ["!=", ["param", "s"], 2], ["<", ["param", "s"], 0],
    ["<=", ["param", "s"], 4], [">", ["param", "s"], 1], [">=", ["dim", "n"], 8], ["not", ["<", ["param", "s"], 0]],
    ["and", ["<", ["param", "s"], 9], ["dim", "n"], 1], ["or", ["<", ["param", "s"], 0], [">", ["dim", "n"], 20]],
    ["select", [">", ["param", "s"], 0], ["dim", "n"], ["-", 0, ["param", "s"]]],
]  # fmt: skip


def test_every_operator_of_expressions() -> None:
    data = manifest(
        [tensor("A", "int8", [["dim", "n"]]), scalar("s", "int32")],
        dims=[{"name": "n", "param": "A", "axis": 0}],
        values=[["value", "int64", e] for e in EXPRESSIONS],
    )
    kernel = Both(data)
    rng = np.random.default_rng(1)
    for _ in range(100):
        kernel.agree(torch.zeros(int(rng.integers(1, 40)), dtype=torch.int8), int(rng.integers(-30, 30)))


NUMBERS = {
    "bool": [True, False, 1, 0], "int8": [-128, 127], "uint8": [0, 255], "int16": [-32768, 9], "uint16": [65535],
    "int32": [-(2**31), 2**31 - 1], "uint32": [2**32 - 1], "int64": [-(2**63), 2**63 - 1, -1], "uint64": [0, 2**63 - 1],
    "float32": [0.1, -1.0, 3, -7, float("-0.0")], "float64": [0.1, -1.0, 2, 1e300, float("inf")],
}  # fmt: skip
WRONG = {
    "bool": [2, -1], "int8": [128, -129], "uint8": [-1, 256], "int32": [2**31, 2.0, True], "uint32": [-1], "int64": [2**63, "1"],
    "uint64": [-1, 2**63], "float32": [1e39, "x", True], "float64": [None, 10**400],
}  # fmt: skip


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers(dtype: str) -> None:
    kernel = Both(manifest([scalar("x", dtype), tensor("A", "float32", [4])]))
    a = torch.zeros(4)
    for value in NUMBERS[dtype]:
        kernel.agree(value, a)
    for value in WRONG.get(dtype, []):
        kernel.hands_on(value, a)
    assert sys.exc_info() == (None, None, None)


def test_strides_scaled_dims_and_any_strides() -> None:
    data = manifest(
        [
            tensor("A", "float32", [["+", ["*", 2, ["dim", "n"]], 1], 8], strides=[["dim", "row"], 1]),
            tensor("B", "int32", [["dim", "n"], 2], strides=[None, None]),
        ],
        dims=[
            {"name": "n", "param": "A", "axis": 0, "scale": 2, "offset": 1},
            {"name": "row", "param": "A", "axis": 0, "of": "strides"},
        ],
        values=[["dim", "n"], ["dim", "row"]],
    )
    kernel = Both(data)
    wide, b = torch.zeros(32, 24), torch.zeros(40, 6, dtype=torch.int32)
    for n in (1, 2, 5):
        kernel.agree(wide[: 2 * n + 1, :8], b[:n, 1:3])
        kernel.agree(wide[: 2 * n + 1, 3:11], b[: 3 * n : 3, ::5])
    kernel.hands_on(wide[:4, :8], b[:1, :2])
    kernel.hands_on(wide[:5, ::3], b[:2, :2])
    kernel.hands_on(torch.zeros(5, 8, dtype=torch.complex64).conj().imag, b[:2, :2])


def test_a_tensor_that_the_kernel_does_not_use() -> None:
    data = manifest(
        [
            tensor("A", "float32", [["dim", "n"]], "none"),
            tensor("B", "int4", [8], "none"),
            tensor("C", "float32", [["dim", "n"]]),
            tensor("E", "float16", [2, ["dim", "m"], 0], "none"),
        ],
        dims=[{"name": "n", "param": "C", "axis": 0}, {"name": "m", "param": "E", "axis": 1}],
        values=[["dim", "n"], ["dim", "m"]],
    )
    kernel = Both(data)
    a, c, e = torch.zeros(12), torch.zeros(12), torch.zeros(2, 3, 0, dtype=torch.float16)
    kernel.agree(a, None, c, e)
    kernel.agree(None, None, c, e)
    for wrong in (torch.zeros(11), torch.zeros(12).double(), torch.zeros(24)[::2], 0):
        kernel.hands_on(wrong, None, c, e)
    kernel.hands_on(a, torch.zeros(4, dtype=torch.uint8), c, e)
    kernel.hands_on(a, None, c, None)
    call = kernel.entry.prepared(kernel._hand_on, [12, 3], [])
    kernel.driver.launched.clear()
    assert call(a, None, c, e) is None
    assert call(None, None, c, e) is None
    first = [struct.unpack_from("<Q", launch.arguments)[0] for launch in kernel.driver.launched]
    assert first == [a.data_ptr(), 0]


def test_guards_choose_the_variant() -> None:
    launch = {"binary": "k.cubin", "grid": [1, 1, 1], "block": [32, 1, 1], "args": [["param", "A"], ["dim", "n"]]}
    aligned = ["and", ["==", ["floormod", ["address", "A"], 16], 0], ["==", ["floormod", ["dim", "n"], 4], 0]]
    data = manifest(
        [tensor("A", "float32", [["dim", "n"]])],
        dims=[{"name": "n", "param": "A", "axis": 0}],
        checks=[{"expr": ["<", ["dim", "n"], 30]}],
        variants=[
            {"guard": aligned, "launches": [{**launch, "symbol": "vectors"}]},
            {
                "guard": [">", ["dim", "n"], 2],
                "launches": [{**launch, "symbol": "first"}, {**launch, "symbol": "second"}],
            },
        ],
    )
    kernel = Both(data)
    memory = torch.zeros(68)
    start = -memory.data_ptr() % 16 // 4
    for offset, n, count in [(0, 8, 1), (1, 8, 2), (0, 7, 2)]:
        kernel.agree(memory[start + offset : start + offset + n])
        assert len(kernel.driver.launched) == count
    kernel.hands_on(memory[start + 1 : start + 3])  # no guard holds
    kernel.hands_on(memory[:30])  # a declared fact does not hold


def test_an_empty_grid_is_not_launched() -> None:
    data = manifest(
        [tensor("A", "float32", [["dim", "n"]])],
        dims=[{"name": "n", "param": "A", "axis": 0}],
        launch={"grid": [["ceildiv", ["dim", "n"], 4], 1, 1]},
    )
    kernel = Both(data)
    assert kernel.agree(torch.zeros(0)) is None
    assert not kernel.driver.launched


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "uint8", "int64", "float64", "bool", "tfloat32"]
)
def test_element_types(dtype: str) -> None:
    kernel = Both(manifest([tensor("A", dtype, [3, 5])]))
    right = torch.zeros(3, 5, dtype=getattr(torch, {"tfloat32": "float32"}.get(dtype, dtype)))
    kernel.agree(right)
    kernel.hands_on(torch.zeros(3, 5, dtype=torch.int16))


def test_attributes_and_several_outputs() -> None:
    outs = [tensor("P", "float32", [4], "w"), tensor("Q", "float32", [4], "w")]
    data = manifest(outs, outputs=["P", "Q"], launch={"cluster": [2, 1, 1], "pdl": True, "grid": [4, 1, 1]})
    kernel = Both(data)
    p, q = torch.zeros(4), torch.zeros(4)
    result = kernel.agree(p, q)
    assert isinstance(result, list)
    assert result[0] is p
    assert result[1] is q


def test_references_are_given_back() -> None:
    gemm = Both(GEMM)
    args = operands(8, 8, 8)
    gemm.native(*args)
    before = [sys.getrefcount(x) for x in (*args, None)]
    for _ in range(1000):
        gemm.native(*args)
    after = [sys.getrefcount(x) for x in (*args, None)]
    assert all(abs(x - y) < 500 for x, y in zip(after, before, strict=True))


def test_a_refused_launch_and_a_new_device_are_pythons() -> None:
    gemm = Both(GEMM)
    args = operands(8, 8, 8)
    gemm.driver.fail["cuLaunchKernelEx"] = [201]
    assert gemm.native(*args) == "from Python"
    gemm.entry._table[State.LAUNCHES + State.READY] = 0
    gemm.handed_on.clear()
    gemm.hands_on(*args)


def test_the_first_launch_on_a_device_makes_it_ready() -> None:
    gemm = Both(GEMM)
    gemm.entry._table[State.LAUNCHES + State.READY] = 0
    gemm.kernel._namespace["launch"](*(x.as_subclass(OnDevice) for x in operands(8, 8, 8)))
    assert gemm.entry._table[State.LAUNCHES + State.READY] == 1


@pytest.mark.parametrize("current", [0, 1])
def test_tensors_must_be_on_the_current_device(current: int) -> None:
    gemm = Both(GEMM, devices=2)
    gemm.driver.current = current
    args = operands(8, 8, 8)
    gemm.hands_on(*args) if current else gemm.agree(*args)


def test_the_stream_is_torchs_current_one() -> None:
    import ctypes

    gemm = Both(GEMM)
    asked: list[tuple[int, int]] = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
    def stream(kind: int, device: int, out: int) -> int:
        asked.append((kind, device))
        ctypes.c_uint64.from_address(out).value = 0x5EED
        return 0

    gemm.entry._table[State.STREAM_READER] = ctypes.cast(stream, ctypes.c_void_p).value or 0
    gemm.native(*operands(8, 8, 8))
    assert asked == [(KDL_CPU, 0)]
    assert gemm.driver.launched[0].stream == 0x5EED


def test_prepared_calls_read_addresses_only() -> None:
    data = manifest(
        [
            tensor("A", "float32", [["dim", "n"]]),
            scalar("s", "float32"),
            scalar("i", "int16"),
            tensor("C", "float32", [4], "w"),
        ],
        dims=[{"name": "n", "param": "A", "axis": 0}],
        values=[["dim", "n"]],
        outputs=["C"],
    )
    kernel = Both(data)
    call = kernel.entry.prepared(kernel._hand_on, [12], [2.5, -3])
    a, c = torch.zeros(12), torch.zeros(4)
    assert call(a, c) is c
    (launch,) = kernel.driver.launched
    expected = struct.pack("<Qfh2xQq", a.data_ptr(), 2.5, -3, c.data_ptr(), 12)
    assert launch.holds(expected)
    assert call(a.data_ptr(), c) == "from Python"
    assert call(a) == "from Python"


def test_prepare_uses_the_native_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    gemm = Both(GEMM)
    args = operands(8, 16, 32)
    call = gemm.kernel.prepare(*(x.as_subclass(OnDevice) for x in args))
    monkeypatch.setattr(OnDevice, "data_ptr", lambda self: pytest.fail("Python read an address"))
    gemm.driver.launched.clear()
    assert call(*args) is args[2]
    (launch,) = gemm.driver.launched
    assert launch.holds(struct.pack("<3Q3i", *(x.data_ptr() for x in args), 8, 16, 32))


def test_threads_share_nothing() -> None:
    gemm = Both(GEMM)
    shapes = [(8 * t, 16, 8 + t) for t in range(1, 9)]

    def work(shape: tuple[int, int, int]) -> None:
        args = operands(*shape)
        for _ in range(200):
            assert gemm.native(*args) is args[2]

    threads = [threading.Thread(target=work, args=(s,)) for s in shapes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not gemm.handed_on
    found = {struct.unpack_from("<3i", launch.arguments, 24) for launch in gemm.driver.launched}
    assert found == set(shapes)
    assert len(gemm.driver.launched) == 1600


def test_a_function_keeps_its_code() -> None:
    call = Both(GEMM).native
    args = operands(8, 8, 8)
    assert call(*args) is args[2]


@pytest.mark.parametrize(
    "change",
    [
        {"workspace": [{"bytes": 64, "zero": False}]},
        {"params": [tensor("A", "int4", [8])], "values": []},
        {"params": [tensor("A", "float32", [8]), scalar("s", "bfloat16")]},
        {"launch": {"grid": [["floordiv", 64, ["dim", "n"]], 1, 1]}, "dims": [{"name": "n", "param": "A", "axis": 0}]},
    ],
    ids=["workspace", "packed", "narrow scalar", "division by a dim"],
)
def test_kernels_that_stay_with_python(change: dict[str, Any]) -> None:
    data = manifest(change.pop("params", [tensor("A", "float32", [8])]), **change)
    artifact = with_native_entry(Artifact(Manifest.from_json(data), {"k.cubin": b"\x7fELF"}))
    assert artifact.manifest.native is None


def test_where_native_code_cannot_be_there_is_python(monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = with_native_entry(Artifact(Manifest.from_json(GEMM), {"k.cubin": b"\x7fELF"}))
    refusals: list[Callable[[], None]] = [
        lambda: monkeypatch.setattr("tile_runtime_cuda.launch.is_usable", lambda: False),
        lambda: monkeypatch.setattr("tile_runtime.native.python_interface", _no_interface),
    ]
    for refuse in refusals:
        with monkeypatch.context():
            refuse()
            assert load(artifact, Driver(RecordingDriver()))._native is None
        monkeypatch.undo()


def _no_interface() -> dict[str, int]:
    raise LoadError("this Python offers no PyList_New, which native entries need")


def test_a_torch_without_the_exchange_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.Tensor, "__dlpack_c_exchange_api__")
    gemm = Both(GEMM)
    gemm.hands_on(*operands(8, 8, 8))
    assert not gemm.entry.learn_torch()


def test_a_graph_can_hold_the_launches() -> None:
    """Between begin and end of a capture nothing may be asked of the driver but launches, and no memory taken from it."""
    gemm = Both(GEMM)
    args = operands(64, 64, 64)
    prepared = gemm.entry.prepared(gemm._hand_on, [64, 64, 64], [])
    gemm.native(*args)  # what must be done once is done before the capture
    gemm.driver.calls.clear()
    for _ in range(3):
        gemm.native(*args)
        prepared(*args)
    assert gemm.driver.calls == ["cuLaunchKernelEx"] * 6
    assert not gemm.handed_on


MAPPED = manifest(
    [
        tensor("X", "float16", [["dim", "m"], ["dim", "n"]], "r"),
        tensor("Y", "float16", [["dim", "m"], ["dim", "n"]], strides=[["dim", "row"], 1]),
    ],
    dims=[
        {"name": "m", "param": "X", "axis": 0},
        {"name": "n", "param": "X", "axis": 1},
        {"name": "row", "param": "Y", "axis": 0, "of": "strides"},
    ],
    tensormaps=[
        {"param": "X", "dtype": "float16", "box": [64, 128], "swizzle": 128},
        {
            "param": "Y",
            "dtype": "float16",
            "box": [64, 32, 2],
            "shape": [64, ["dim", "m"], ["floordiv", ["dim", "n"], 64]],
            "strides": [["dim", "row"], 64],
            "element_strides": [1, 2, 1],
            "fill": "nan",
        },
    ],
    values=[["tensormap", 0], ["value", "int8", 7], ["tensormap", 1]],
)


def test_tensor_maps_are_made_once_for_each_tensor() -> None:
    """Both ways tell the driver the same; the native one keeps what it was given."""
    kernel = Both(MAPPED)
    x, wide = torch.zeros(256, 192, dtype=torch.float16), torch.zeros(256, 320, dtype=torch.float16)
    y = wide[:, 64:256]
    kernel.agree(x, y)
    first = (6, 2, x.data_ptr(), [192, 256], [384], [64, 128], [1, 1], 0, 3, 2, 0)
    second = (6, 3, y.data_ptr(), [64, 256, 3], [640, 128], [64, 32, 2], [1, 2, 1], 0, 0, 2, 1)
    assert kernel.driver.encoded == [first, second] * 2  # native, then Python
    kernel.agree(x, y)
    assert len(kernel.driver.encoded) == 4
    kernel.agree(x[:128], y[:128])  # the same addresses, other extents
    assert [e[3] for e in kernel.driver.encoded[4:]] == [[192, 128], [64, 128, 3]] * 2


def test_many_tensors_share_the_slots_of_a_map() -> None:
    kernel = Both(MAPPED)
    memory = torch.zeros(64 * 4096, dtype=torch.float16)
    rng = np.random.default_rng(3)
    for _ in range(200):
        x, y = (memory[64 * int(k) :][: 64 * 64].view(64, 64) for k in rng.integers(0, 4000, 2))
        kernel.agree(x, y)


def test_a_map_that_the_driver_refuses_is_explained_by_python() -> None:
    kernel = Both(MAPPED)
    x = torch.zeros(128, 64, dtype=torch.float16)
    kernel.driver.fail["cuTensorMapEncodeTiled"] = [1]
    kernel.hands_on(x, x)
    kernel.agree(x, x)  # nothing of the failure is kept
