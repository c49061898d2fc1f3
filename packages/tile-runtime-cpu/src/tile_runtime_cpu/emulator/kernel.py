"""A CUDA or HIP artifact as a callable kernel that the emulator runs: the launcher of every device, another backend.

TILELANG_EMULATE_SEED (default 0) and TILELANG_EMULATE_MODE (`early` or `late`) choose the schedule of warps and when
asynchronous copies complete. A finding is an EmulationError; the first ones are in its text.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tile_runtime.artifact import Artifact
from tile_runtime.dtypes import DTYPES
from tile_runtime.errors import KernelAssertError, LoadError
from tile_runtime.expression import evaluate
from tile_runtime.launch import LoadedKernel
from tile_runtime.launch_source import LaunchSite
from tile_runtime.tensor_map import TensorMap

from .meanings import Meanings
from .module import Buffer, EmulatedModule, compile


class EmulatorBackend:
    """What the launcher needs of a device (tile_runtime.launch_source.Backend), for arrays in the host's memory."""

    device = "cpu"

    def __init__(self, artifact: Artifact, modules: Mapping[str, EmulatedModule]) -> None:
        self.manifest, self.modules = artifact.manifest, modules
        self.reports: list[Any] = []  # of the last call, one for each launch
        self.scratch: list[tuple[Any, Buffer]] = []  # memory of T.alloc_global, as long as its call holds it

    def torch_test(self, name: str) -> str:
        return f"{name}.device.type == 'cpu'"

    def workspace(self, nbytes: int, zero: bool, align: int) -> tuple[object, int]:
        memory = np.zeros(nbytes + align, np.uint8)
        address = int(memory.ctypes.data) + (-int(memory.ctypes.data)) % align
        self.scratch = [entry for entry in self.scratch if entry[0]() is not None]  # of calls that have ended
        self.scratch.append((weakref.ref(memory), Buffer(address, nbytes, "scratch", True)))
        return memory, address

    def emit(self, site: LaunchSite, namespace: dict[str, Any]) -> list[str]:
        params, dims = self.manifest.params, self.manifest.dims
        pointers = ", ".join(f"p{i}" if p.kind != "scalar" else "0" for i, p in enumerate(params))
        scalars = ", ".join(f"s{i}" if p.kind == "scalar" else "0" for i, p in enumerate(params))
        name = f"emulate{site.number}"
        maps = self.manifest.tensormaps
        namespace["tensor_map"] = lambda number, *tensor: TensorMap.of(maps[number], *tensor)
        namespace[name] = lambda *call: self.run(site, *call)
        three = lambda texts: f"({', '.join(texts)})"  # noqa: E731
        arguments = ", ".join(a.text for a in site.arguments)
        return [
            f"{name}([{arguments}], {three(site.grid)}, {three(site.block)}, {site.shared}, [{pointers}], [{scalars}], "
            f"[{', '.join(f'd{k}' for k in range(len(dims)))}])"
        ]

    def run(
        self,
        site: LaunchSite,
        arguments: Sequence[Any],
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        pointers: Sequence[int],
        scalars: Sequence[Any],
        dims: Sequence[int],
    ) -> None:
        """One launch, checked; raises EmulationError for what it finds."""
        if site.number == 0:
            self.reports = []
        report = self.modules[site.launch.binary].launch(
            site.launch.symbol,
            grid,
            block,
            shared,
            list(arguments),
            seed=int(os.environ.get("TILELANG_EMULATE_SEED", "0")),
            mode=os.environ.get("TILELANG_EMULATE_MODE", "early"),
            buffers=self.buffers(pointers, scalars, dims),
            cluster=site.launch.cluster or (1, 1, 1),
        )
        self.reports.append(report)
        if report.output:
            print(report.output, end="")
        self.check_assertions(site, report)
        report.check()

    def check_assertions(self, site: LaunchSite, report: Any) -> None:
        """Raises KernelAssertError, with the user's line and text, if an assertion of the kernel is what ended it."""
        for finding in report.errors:
            if finding.kind == "device-assert" and 0 < finding.code <= len(site.launch.errors):
                where = f"{self.manifest.name} ({site.launch.symbol})"
                thread = f"thread {finding.threads[0]} of block {finding.block}"
                raise KernelAssertError(f"{where}: {site.launch.errors[finding.code - 1]} ({thread})")

    def buffers(self, pointers: Sequence[int], scalars: Sequence[Any], dims: Sequence[int]) -> list[Buffer]:
        """The call's tensors with their sizes, for checking bounds."""
        sizes = {d.name: int(v) for d, v in zip(self.manifest.dims, dims)}
        integers = {
            p.name: int(s)
            for p, s in zip(self.manifest.params, scalars)
            if p.kind == "scalar" and DTYPES[p.dtype].kind != "float"
        }
        found = [buffer for memory, buffer in self.scratch if memory() is not None]
        for param, pointer in zip(self.manifest.params, pointers):
            if param.kind != "tensor":
                continue
            shape = [evaluate(e, sizes, integers) for e in param.shape]
            facts = DTYPES[param.dtype]
            if shape and facts.per_byte > 1:
                shape[-1] = -(-shape[-1] // facts.per_byte)
            size = DTYPES[param.storage].itemsize
            if param.strides is not None:
                steps = [evaluate(e, sizes, integers) if e is not None else 0 for e in param.strides]
                reach = sum((extent - 1) * step for extent, step in zip(shape, steps)) + 1
            else:
                reach = int(np.prod(shape, dtype=np.int64))
            if reach > 0:
                found.append(Buffer(pointer, reach * size, param.name, param.access != "r"))
        return found


#: How the generated text of a kind of target is named in its artifact.
_TEXTS = {"cuda": ".cu", "hip": ".hip"}


def load(artifact: Artifact, meanings: Meanings | None = None) -> LoadedKernel:
    """A kernel that runs an artifact's device text on the host. Raises LoadError for one that has none."""
    manifest = artifact.manifest
    suffix = _TEXTS.get(manifest.target.kind)
    texts = [b.file for b in manifest.binaries if b.kind == "source" and suffix and b.file.endswith(suffix)]
    if not texts or suffix is None:
        raise LoadError(
            f"{manifest.name} was compiled for {manifest.target.kind}: the emulator runs CUDA and HIP artifacts"
        )
    arch = manifest.target.arch.split(":")[0]  # gfx90a:sramecc+ is a gfx90a
    modules: dict[str, EmulatedModule] = {}
    for binary in {launch.binary for variant in manifest.variants for launch in variant.launches}:
        text = binary.rpartition(".")[0] + suffix  # what a binary was made of stands beside it
        printed = artifact.read(text if text in texts else texts[0]).decode()
        modules[binary] = compile(printed, arch=arch, meanings=meanings)
    return LoadedKernel(artifact, EmulatorBackend(artifact, modules), modules)
