"""Loads the objects of an artifact and writes the CPU's part of its launcher: one packed job, one native call."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tile_runtime.artifact import Artifact
from tile_runtime.binding import Bound
from tile_runtime.errors import DeviceUnavailable, KernelAssertError, KernelMemoryError, LoadError
from tile_runtime.launch import LoadedKernel
from tile_runtime.launch_source import LaunchSite
from tile_runtime.manifest import Launch, Manifest
from tile_runtime.tensor import numpy_address

from . import cpuid, prepared
from .elf import Image
from .pool import JOB_HEADER, NO_MEMORY, POOL
from .prints import make_callback, site_table


@dataclass
class _Resources:
    """What loaded code needs as long as it can be called."""

    images: dict[str, Image] = field(default_factory=dict)  # by binary
    callbacks: list[Any] = field(default_factory=list)
    estimates: dict[int, Any] = field(default_factory=dict)  # by address of the function


def load(artifact: Artifact) -> LoadedKernel:
    """A callable kernel. Raises DeviceUnavailable if this CPU lacks a feature, LoadError if an object is not sound."""
    target = artifact.manifest.target
    if target.kind != "cpu":
        raise LoadError(f"{artifact.manifest.name} was compiled for {target.kind}, not for the CPU")
    lacking = cpuid.missing(target.arch, target.features)
    if lacking:
        raise DeviceUnavailable(
            f"{artifact.manifest.name} was compiled for {target.arch or 'x86-64'} {' '.join(target.features)}; "
            f"this CPU ({cpuid.level() or 'not x86-64'}) lacks {', '.join(lacking)}: compile it for this machine"
        )
    resources = _Resources()
    for binary in {launch.binary for launch in _launches(artifact.manifest)}:
        _load_binary(artifact, binary, resources)
    backend = CpuBackend(artifact.manifest, resources)
    return LoadedKernel(artifact, backend, resources, backend.quicken)


def _launches(manifest: Manifest) -> list[Launch]:
    return [launch for variant in manifest.variants for launch in variant.launches]


def _load_binary(artifact: Artifact, binary: str, resources: _Resources) -> None:
    """A binary that launches name, together with the objects that none names: those are its libraries."""
    kinds = {b.file: b.kind for b in artifact.manifest.binaries}
    if kinds[binary] != "elf":
        raise LoadError(f"{artifact.manifest.name}: {binary} is of kind {kinds[binary]}; the CPU launches kind elf")
    launches = _launches(artifact.manifest)
    named = {launch.binary for launch in launches}
    libraries = sorted(file for file, kind in kinds.items() if kind == "elf" and file not in named)
    callback = make_callback(site_table(launch for launch in launches if launch.binary == binary))
    resources.callbacks.append(callback)
    address = ctypes.cast(callback, ctypes.c_void_p).value or 0
    objects = [(f"{artifact.manifest.name}/{file}", artifact.read(file)) for file in (binary, *libraries)]
    resources.images[binary] = Image(objects, {"tl_print": address})


class CpuBackend:
    """The CPU's lines in a launcher (tile_runtime.launch_source.Backend)."""

    device = "cpu"

    def __init__(self, manifest: Manifest, resources: _Resources) -> None:
        self._manifest = manifest
        self._resources = resources

    def torch_test(self, name: str) -> str:
        return f"{name}.is_cpu"

    def emit(self, site: LaunchSite, namespace: dict[str, Any]) -> list[str]:
        """Packs the job of pool.ll: header, pointers, integers. Bytes, so that two threads never share a buffer."""
        n = site.number
        pointers = [a.text for a in site.arguments if a.kind == "pointer"]
        values = [a for a in site.arguments if a.kind == "value"]
        if len(pointers) + len(values) != len(site.arguments):
            raise LoadError(f"{self._manifest.name}: the CPU knows no tensor maps")
        codes = "".join(
            {"float": "d", "uint64": "Q"}.get("float" if "float" in a.dtype else a.dtype, "q") for a in values
        )
        namespace["pool"] = POOL
        namespace["kernel_failed"] = self._failed
        namespace[f"pack{n}"] = struct.Struct(f"{JOB_HEADER.format}{len(pointers)}Q{codes}").pack
        namespace[f"fn{n}"], namespace[f"estimate{n}"] = self._site(site.launch)
        namespace[f"launch{n}"] = site.launch
        blocks = " * ".join(g for g in site.grid if g != "1") or "1"
        items = [
            f"fn{n}",
            f"estimate{n}",
            blocks,
            site.shared,
            str(len(pointers)),
            "0",
            *pointers,
            *(a.text for a in values),
        ]
        return [
            f"rc = pool.run(pool.address, pack{n}({', '.join(items)}))",
            f"if rc: raise kernel_failed(launch{n}, rc)",
        ]

    def quicken(self, bound: Bound, python: Callable[..., Any]) -> Callable[..., Any]:
        """tile_runtime.launch.Quicken."""
        return prepared.quicken(self._manifest, bound, python, self._site, self._failed, self._resources)

    def _site(self, launch: Launch) -> tuple[int, int]:
        """Addresses of a launch's function and of the running estimate of its time."""
        function = self._resources.images[launch.binary].address(launch.symbol)
        estimate = self._resources.estimates.setdefault(function, ctypes.c_int64(0))
        return function, ctypes.addressof(estimate)

    def workspace(self, nbytes: int, zero: bool, align: int) -> tuple[object, int]:
        """Memory for one call and its address."""
        array = (np.zeros if zero else np.empty)(max(0, nbytes) + align, np.uint8)
        address = numpy_address(array)
        return array, address + -address % align

    def _failed(self, launch: Launch, code: int) -> Exception:
        where = f"{self._manifest.name} ({launch.symbol})"
        if code == NO_MEMORY:
            return KernelMemoryError(f"{where}: no memory for the scratch area of a thread")
        if 0 < code <= len(launch.errors):
            return KernelAssertError(f"{where}: {launch.errors[code - 1]}")
        return KernelAssertError(f"{where}: the kernel returned the unknown error code {code}")
