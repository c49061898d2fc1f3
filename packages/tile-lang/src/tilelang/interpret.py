"""`execution="interpret"`: call a kernel like any other, and run it tile by tile in numpy.

The interpreter is put behind the runtime's own launcher, so argument checks, outputs and dimensions are the same.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.ir.dtypes import dtype_of

# What `T.print` writes and where a debugger stops; a program may replace both (docs/tutorial).
output: Callable[[str], None] = print
hook: Callable[..., None] | None = None


class InterpreterBackend:
    """The vendor part of a launcher, by which a launch becomes one call of the interpreter."""

    device = "cpu"

    def __init__(self, func: Any) -> None:
        self.func = func

    def torch_test(self, name: str) -> str:
        return f"{name}.device.type == 'cpu'"

    def emit(self, site: Any, namespace: dict[str, Any]) -> list[str]:
        from tilelang.ir import signature

        described = signature.signature(self.func)
        namespace["interpret"] = self.run
        self.params, self.dims = described["params"], described["dims"]
        return [f"interpret([{', '.join(a.text for a in site.arguments)}])"]

    def workspace(self, nbytes: int, zero: bool, align: int) -> tuple[object, int]:
        memory = np.zeros(nbytes + align, np.uint8)
        return memory, int(memory.ctypes.data) + (-int(memory.ctypes.data)) % align

    def run(self, values: list[Any]) -> None:
        """`values`: a pointer or scalar for each parameter, then the dims."""
        from tile_runtime.expression import evaluate
        from tilelang.interpreter import run

        count = len(self.params)
        dims = {d["name"]: int(v) for d, v in zip(self.dims, values[count:])}
        scalars = {p["name"]: v for p, v in zip(self.params, values) if p["kind"] == "scalar"}
        integers = {n: int(v) for n, v in scalars.items() if isinstance(v, (int, np.integer))}
        arguments: list[Any] = []
        for param, value in zip(self.params, values):
            if param["kind"] == "scalar":
                arguments.append(value)
                continue
            shape = [evaluate(e, dims, integers) for e in param["shape"]]
            strides = param["strides"]
            if strides is not None:
                strides = [evaluate(e, dims, integers) for e in strides]
            arguments.append(array_at(int(value), str(param["dtype"]), shape, strides))
        run(self.func, arguments, dims, hook=hook, output=output)


def array_at(address: int, dtype: str, shape: list[int], strides: list[int] | None) -> np.ndarray[Any, Any]:
    """The memory of a tensor as a writable array in its logical dtype (packed types: bytes, last dim // per)."""
    kind = dtype_of(dtype)
    element = np.dtype(np.uint8) if kind.bits < 8 else kind.as_numpy()
    if kind.bits < 8 and shape:
        shape = [*shape[:-1], -(-shape[-1] // kind.per_byte)]
    if strides is None:
        steps: list[int] = []
        step = element.itemsize
        for extent in reversed(shape):
            steps.insert(0, step)
            step *= max(extent, 1)
    else:
        steps = [s * element.itemsize for s in strides]
    if any(extent == 0 for extent in shape) or not address:
        return np.empty(shape, element)
    reach = sum((extent - 1) * step for extent, step in zip(shape, steps)) + element.itemsize
    memory = (ctypes.c_uint8 * reach).from_address(address)
    # Strided as integers first: numpy's as_strided knows some types of ml_dtypes only by their width.
    first = np.ctypeslib.as_array(memory)[: element.itemsize].view(f"u{element.itemsize}")
    return np.lib.stride_tricks.as_strided(first, shape, steps, writeable=True).view(element)


def load(func: Any) -> Any:
    """A callable kernel that interprets a traced function."""
    from tile_runtime.artifact import Artifact
    from tile_runtime.launch import LoadedKernel
    from tile_runtime.manifest import Manifest
    from tilelang.ir import signature

    described = signature.signature(func)
    arguments = [["param", p["name"]] for p in described["params"]]
    arguments += [["dim", d["name"]] for d in described["dims"]]
    launch = {"binary": "kernel.txt", "symbol": "interpret", "grid": [1, 1, 1], "block": [1, 1, 1], "args": arguments}
    manifest = {
        "format": 1,
        "name": str(func.attrs["global_symbol"]),
        "target": {"kind": "interpret", "arch": "numpy"},
        **described,
        "variants": [{"guard": None, "launches": [launch]}],
        "binaries": [{"file": "kernel.txt", "kind": "source"}],
        "source": "kernel.txt",
    }
    artifact = Artifact(Manifest.from_json(manifest), {"kernel.txt": func.script().encode()})
    return LoadedKernel(artifact, InterpreterBackend(func))
