"""A CUDA or HIP artifact as a callable kernel that the emulator runs: the launcher of every device, another backend.

TILELANG_EMULATE_SEED (default 0) and TILELANG_EMULATE_MODE (`early` or `late`) choose the schedule of warps and when
asynchronous copies complete; TILELANG_EMULATE_TIMEOUT (default 120) is in seconds for one launch. A finding is an
EmulationError; the first ones are in its text.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tile_runtime.artifact import Artifact
from tile_runtime.dtypes import DTYPES
from tile_runtime.errors import KernelAssertError, LoadError
from tile_runtime.expression import evaluate
from tile_runtime.launch import LoadedKernel
from tile_runtime.launch_source import LaunchSite
from tile_runtime.manifest import Launch, Manifest
from tile_runtime.tensor_map import TensorMap

from . import stops
from .meanings import Meanings
from .module import EmulatedModule, Standstill, compile
from .program import Program, row_major
from .report import Buffer
from .stops import Array, Stopping, TileHook

DEBUG = "debug.json"  # what the compiler tells of the text


class Text(NamedTuple):
    """A device text, compiled for the host, and what the compiler tells of it."""

    module: EmulatedModule
    program: Program | None


class EmulatorBackend:
    """What the launcher needs of a device (tile_runtime.launch_source.Backend), for arrays in the host's memory."""

    device = "cpu"

    def __init__(
        self,
        artifact: Artifact,
        texts: Mapping[str, Text],
        hook: Callable[[], TileHook | None],
        meanings: Meanings | None = None,
    ) -> None:
        self.manifest, self.texts, self.hook, self.meanings = artifact.manifest, texts, hook, meanings
        self.stopping: dict[str, tuple[Stopping, EmulatedModule]] = {}  # by binary, for hooks
        self.reports: list[Any] = []  # of the last call, one for each launch
        self.counted: dict[str, dict[str, int]] = {}  # by symbol, of its last launch
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
        buffers = self.buffers(pointers, scalars, dims)
        (module, program), at_stop = self.texts[site.launch.binary], None
        hook = self.hook()
        if hook is not None and program is not None:
            module, at_stop = self.stopped(site.launch, hook, buffers)
        report = module.launch(
            site.launch.symbol,
            grid,
            block,
            shared,
            list(arguments),
            seed=int(os.environ.get("TILELANG_EMULATE_SEED", "0")),
            mode=os.environ.get("TILELANG_EMULATE_MODE", "early"),
            timeout_seconds=float(os.environ.get("TILELANG_EMULATE_TIMEOUT", "120")),
            buffers=buffers,
            cluster=grid if site.launch.cooperative else site.launch.cluster or (1, 1, 1),
            program=program,
            assertions=site.launch.errors,
            at_stop=at_stop,
        )
        self.reports.append(report)
        self.counted[site.launch.symbol] = report.counters
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

    def stopped(
        self, launch: Launch, hook: TileHook, buffers: Sequence[Buffer]
    ) -> tuple[EmulatedModule, Callable[[Standstill], None]]:
        """The text with stops, compiled at the first call with a hook, and what calls the hook there."""
        text, symbol = self.texts[launch.binary], launch.symbol
        assert text.program is not None
        if launch.binary not in self.stopping:
            made = stops.prepare(text.module.source, text.program)
            again = compile(made.text, arch=_arch(self.manifest), meanings=self.meanings)
            self.stopping[launch.binary] = made, again
        stopping, module = self.stopping[launch.binary]
        tiles = text.program.kernels[symbol]
        dtypes = {p.name: p.storage for p in self.manifest.params}

        def at_stop(still: Standstill) -> None:
            gathered: list[tuple[str, Callable[[], Array]]] = []
            for buffer in buffers:
                place, dtype = still.moved(buffer.address), dtypes.get(buffer.name, "uint8")
                gathered.append((buffer.name, partial(stops.global_array, buffer, place, dtype)))
            gathered += [(tile.name, partial(stops.shared_tile, tile, still.shared)) for tile in tiles.shared]
            for slot in stopping.slots_of[symbol]:
                tile, addresses = stopping.slots[slot], still.shown(slot)
                if all(addresses[t] for t in stops.owners(tile, still.threads)):
                    gathered.append((tile.name, partial(stops.register_tile, tile, addresses)))
            hook(stopping.operators[still.stop], still.block[: tiles.rank], stops.Tiles(gathered))

        return module, at_stop

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
            if param.kind != "tensor" or not pointer:  # None, for one that the kernel does not use
                continue
            shape = [evaluate(e, sizes, integers) for e in param.shape]
            facts = DTYPES[param.dtype]
            if shape and facts.per_byte > 1:
                shape[-1] = -(-shape[-1] // facts.per_byte)
            size = DTYPES[param.storage].itemsize
            steps = row_major(shape)
            if param.strides is not None:
                steps = [evaluate(e, sizes, integers) if e is not None else 0 for e in param.strides]
            if 0 not in shape:
                reach = sum((extent - 1) * step for extent, step in zip(shape, steps)) + 1
                rights = (param.access != "r", param.access != "w")  # writable; initialized, as far as anybody reads it
                found.append(Buffer(pointer, reach * size, param.name, *rights, size, tuple(shape), tuple(steps)))
        return found


#: How the generated text of a kind of target is named in its artifact.
_TEXTS = {"cuda": ".cu", "hip": ".hip"}


def load(
    artifact: Artifact, meanings: Meanings | None = None, hook: Callable[[], TileHook | None] = lambda: None
) -> LoadedKernel:
    """A kernel that runs an artifact's device text on the host. Raises LoadError for one that has none.

    `hook()` is asked at each launch for what to call before tile operators (see stops.py), None for nothing.
    """
    manifest = artifact.manifest
    suffix = _TEXTS.get(manifest.target.kind)
    printed = [b.file for b in manifest.binaries if b.kind == "source" and suffix and b.file.endswith(suffix)]
    if not printed or suffix is None:
        raise LoadError(
            f"{manifest.name} was compiled for {manifest.target.kind}: the emulator runs CUDA and HIP artifacts"
        )
    texts: dict[str, Text] = {}
    for binary in {launch.binary for variant in manifest.variants for launch in variant.launches}:
        stem = binary.rpartition(".")[0]  # what a binary was made of stands beside it
        text, tables = stem + suffix, stem.removesuffix("kernel") + DEBUG
        source = artifact.read(text if text in printed else printed[0]).decode()
        module = compile(source, arch=_arch(manifest), meanings=meanings)
        texts[binary] = Text(module, Program(artifact.read(tables)) if tables in artifact.files else None)
    return LoadedKernel(artifact, EmulatorBackend(artifact, texts, hook, meanings), texts)


def _arch(manifest: Manifest) -> str:
    """gfx90a of gfx90a:sramecc+."""
    return manifest.target.arch.split(":")[0]
