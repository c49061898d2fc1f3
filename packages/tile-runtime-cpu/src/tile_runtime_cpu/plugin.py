"""The object that the entry point `cpu` of the group `tile_runtime.devices` names."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tile_runtime.artifact import Artifact
from tile_runtime.device import Availability, ProfileHooks
from tile_runtime.launch import LoadedKernel

from . import cpuid, launch, profile
from .pool import POOL


class CpuDevice:
    """This machine's CPU (tile_runtime.device.Device)."""

    name = "cpu"

    def is_available(self) -> Availability:
        """x86-64 Linux only: the loader knows no other object format."""
        if sys.platform != "linux" or not cpuid.level():
            return Availability(False, f"needs x86-64 Linux; this is {platform.machine()} {sys.platform}")
        return Availability(True, f"{cpuid.level()} on Linux")

    def arch(self) -> str:
        """The level of this CPU, such as "x86-64-v4"."""
        return cpuid.level()

    def load(self, artifact: Artifact) -> LoadedKernel:
        """Maps and relocates the objects. Raises LoadError or DeviceUnavailable."""
        return launch.load(artifact)

    def emulate(
        self,
        artifact: Artifact,
        meanings: Mapping[str, Callable[..., Any]] | None = None,
        hook: Callable[[], Callable[..., Any] | None] = lambda: None,
    ) -> LoadedKernel:
        """The text of a CUDA or HIP artifact run on this CPU, thread by thread and checked (docs/internals/emulator.md).

        `meanings` are Python functions for instructions that the emulator does not know, by name (`ptx:<opcode>`). What
        `hook()` returns is called before each tile operator, as the interpreter does it.
        """
        from .emulator.kernel import load

        return load(artifact, meanings, hook)

    def profile_hooks(self) -> ProfileHooks:
        return profile.hooks()

    def describe(self) -> dict[str, Any]:
        """Level, features, threads and the state of the native pool."""
        return {"arch": cpuid.level(), "features": sorted(cpuid.features()), **POOL.describe()}


DEVICE = CpuDevice()
