"""The native entry beside the Python launcher: the same launches, and Python for what it does not know.

Tensors lie in host memory and the runtime records. The native code is told that host memory is its device; the Python
launcher gets the same tensors as a class that says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tile_compiler.compile import with_native_entry
from tile_runtime import native
from tile_runtime.artifact import Artifact
from tile_runtime.manifest import Manifest
from tile_runtime.native_interface import State
from tile_runtime_rocm.errors import LaunchError
from tile_runtime_rocm.launch import load
from tile_runtime_rocm.runtime import Runtime

from .fake_hip import OnDevice, OnSecond, RecordingHip

KDL_CPU = 1
pytestmark = pytest.mark.skipif(not native.is_usable(), reason="native entries are for x86-64 Linux and CPython")


def tensor(name: str, shape: list[Any], access: str) -> dict[str, Any]:
    return {"name": name, "kind": "tensor", "dtype": "float32", "shape": shape, "access": access}


SCALED = {
    "format": 1,
    "name": "scaled",
    "target": {"kind": "hip", "arch": "gfx942"},
    "params": [
        tensor("A", [["dim", "m"], ["dim", "n"]], "r"),
        tensor("B", [["dim", "m"], ["dim", "n"]], "w"),
        {"name": "s", "kind": "scalar", "dtype": "float64", "shape": []},
    ],
    "dims": [{"name": "m", "param": "A", "axis": 0}, {"name": "n", "param": "A", "axis": 1}],
    "variants": [
        {
            "guard": None,
            "launches": [
                {
                    "binary": "k.hsaco",
                    "symbol": "scaled",
                    "grid": [["ceildiv", ["dim", "n"], 64], ["dim", "m"], 1],
                    "block": [256, 1, 1],
                    "shared": ["*", ["min", ["dim", "n"], 64], 4],
                    "args": [
                        ["param", "A"],
                        ["value", "int32", ["dim", "n"]],  # a gap follows it
                        ["param", "B"],
                        ["param", "s"],
                        ["value", "int32", ["dim", "m"]],
                    ],
                }
            ],
        }
    ],
    "binaries": [{"file": "k.hsaco", "kind": "hsaco"}],
}


@pytest.fixture(autouse=True)
def current(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """torch as ROCm's; the device that is current is in the list."""
    device = [0]
    monkeypatch.setattr(torch.version, "hip", "7.0.2")
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: device[0], raising=False)
    return device


class Both:
    """A kernel that has been called once from Python, and its native function."""

    def __init__(self, devices: int = 1) -> None:
        artifact = with_native_entry(Artifact(Manifest.from_json(SCALED), {"k.hsaco": b"\x7fELF"}))
        self.hip = RecordingHip(devices=devices)
        self.kernel = load(artifact, Runtime(self.hip))
        assert self.kernel._native is not None
        self.entry = self.kernel._native
        self.entry._table[State.DEVICE_TYPE] = KDL_CPU
        self.python(*operands(1, 1), 1.0)
        self.handed_on: list[tuple[Any, ...]] = []
        self.native = self.entry.launch(lambda *args: self.handed_on.append(args))

    def python(self, *args: Any, kind: Any = OnDevice) -> None:
        self.kernel._namespace["launch"](*(a.as_subclass(kind) if type(a) is torch.Tensor else a for a in args))

    def shown(self) -> list[tuple[Any, ...]]:
        found = [(x.grid, x.block, x.shared, x.stream, int(x.function), x.arguments) for x in self.hip.launched]
        self.hip.launched.clear()
        return found


def operands(m: int, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.zeros(m, n), torch.zeros(m, n)


def test_native_and_python_launch_alike() -> None:
    both = Both()
    both.shown()
    rng = np.random.default_rng(0)
    for _ in range(30):
        args = (*operands(*(int(x) for x in rng.integers(1, 500, 2))), float(rng.standard_normal()))
        both.native(*args)
        mine = both.shown()
        both.python(*args)
        assert mine == both.shown()
        assert len(mine) == 1
    assert not both.handed_on


def test_a_prepared_call_reads_addresses_alone() -> None:
    both = Both()
    a, b = operands(3, 70)
    prepared = both.entry.prepared(lambda *_: None, [3, 70], [2.5])
    both.shown()
    prepared(a, b)
    mine = both.shown()
    both.python(a, b, 2.5)
    assert mine == both.shown()


def test_what_does_not_fit_is_for_python() -> None:
    both = Both()
    a, b = operands(4, 8)
    both.shown()
    for args in [(a, b), (a, b[:2], 1.0), (a.half(), b, 1.0), (a, b, "s"), (a.numpy(), b, 1.0)]:
        both.native(*args)
        assert len(both.handed_on) == 1
        both.handed_on.clear()
    assert not both.shown()


def test_a_refused_launch_is_launched_and_explained_by_python() -> None:
    both = Both()
    both.hip.fail = {"native": [1], "hipModuleLaunchKernel": [1]}
    both.native(*operands(4, 8), 1.0)
    assert len(both.handed_on) == 1
    with pytest.raises(LaunchError, match="invalid argument"):
        both.python(*operands(4, 8), 1.0)


def test_a_function_belongs_to_the_device_that_was_prepared_last(current: list[int]) -> None:
    """HIP's handles are of one device: native code launches there, Python elsewhere."""
    both = Both(devices=2)
    assert both.entry._table[both.entry._place(0) + State.KERNEL] == 0xF000
    assert both.entry._table[both.entry._place(0) + State.READY] == 1
    current[0] = 1
    both.python(*operands(1, 1), 1.0, kind=OnSecond)
    assert both.entry._table[both.entry._place(0) + State.KERNEL] == 0xF001
    assert both.entry._table[both.entry._place(0) + State.READY] == 2
