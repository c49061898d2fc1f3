"""What the tests of tile-runtime share: a small manifest to vary, and a backend that records launches in Python."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tile_runtime.artifact import Artifact
from tile_runtime.launch import LoadedKernel
from tile_runtime.launch_source import LaunchSite
from tile_runtime.manifest import Manifest
from tile_runtime.tensor import numpy_address

ADD: dict[str, Any] = {
    "format": 1,
    "name": "add",
    "key": "k2",
    "target": {"kind": "cpu", "arch": "x86-64-v3", "features": ["avx512bf16"]},
    "params": [
        {"name": "A", "dtype": "float32", "shape": [["dim", "n"], 64], "access": "r"},
        {"name": "B", "dtype": "float32", "shape": [["dim", "n"], 64], "access": "r"},
        {"name": "C", "dtype": "float32", "shape": [["dim", "n"], 64], "access": "w"},
    ],
    "dims": [{"name": "n", "param": "A", "axis": 0}],
    "outputs": ["C"],
    "variants": [
        {
            "launches": [
                {
                    "binary": "add.o",
                    "symbol": "main",
                    "grid": [["ceildiv", ["dim", "n"], 4], 1, 1],
                    "args": [["param", "A"], ["param", "B"], ["param", "C"], ["dim", "n"]],
                }
            ]
        }
    ],
    "binaries": [{"file": "add.o", "kind": "elf"}],
}


@pytest.fixture
def add() -> dict[str, Any]:
    """A manifest as JSON, free to change."""
    return copy.deepcopy(ADD)


class Recorder:
    """A backend whose launches append (symbol, argument values, grid, block, shared) to `calls`."""

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self.calls: list[tuple[Any, ...]] = []

    def torch_test(self, name: str) -> str:
        return f"{name}.is_{'cpu' if self.device == 'cpu' else 'cuda'}"

    def emit(self, site: LaunchSite, namespace: dict[str, Any]) -> list[str]:
        namespace["record"] = lambda *call: self.calls.append(call)
        arguments = ", ".join(a.text for a in site.arguments)
        grid, block = ", ".join(site.grid), ", ".join(site.block)
        return [f"record({site.launch.symbol!r}, [{arguments}], ({grid}), ({block}), {site.shared})"]

    def workspace(self, nbytes: int, zero: bool, align: int) -> tuple[object, int]:
        array = np.zeros(nbytes, np.uint8)
        return array, numpy_address(array)


Maker = Callable[..., tuple[LoadedKernel, list[tuple[Any, ...]]]]


@pytest.fixture
def make(add: dict[str, Any]) -> Maker:
    """make(params=..., ...) -> a kernel like `add` with these fields changed, and the list of its launches."""

    def build(device: str = "cpu", **fields: Any) -> tuple[LoadedKernel, list[tuple[Any, ...]]]:
        data = {**add, **fields}
        if "params" in fields and "variants" not in fields:
            data["variants"][0]["launches"][0] |= {
                "grid": [1, 1, 1],
                "args": [["param", p["name"]] for p in fields["params"]],
            }
        files = {b["file"]: b"code" for b in data["binaries"]}
        backend = Recorder(device)
        return LoadedKernel(Artifact(Manifest.from_json(data), files), backend), backend.calls

    return build
