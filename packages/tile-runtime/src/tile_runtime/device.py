"""The contract a vendor runtime fulfils.

A vendor package puts one object of this form behind an entry point in the group `tile_runtime.devices`; registry.py
finds it. Nothing here or there imports a vendor by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

from .artifact import Artifact
from .launch import LoadedKernel


class Availability(NamedTuple):
    """Whether a device can be used now; `reason` says why not (or what was found)."""

    ok: bool
    reason: str

    def __bool__(self) -> bool:
        return self.ok


class ProfileHooks(NamedTuple):
    """What `profiler.do_bench` needs of a vendor.

    `synchronize()` waits until all work is done. `time(call, repeats)` returns the seconds of each of `repeats` calls,
    measured with the vendor's best clock (events on a GPU). `cache_bytes` is the size of the last-level cache.
    `time_cold` is the same with that cache overwritten before each call, outside of what is measured; the work of
    overwriting also hides the host's part of a launch on a GPU. None where a vendor has no such measurement.
    """

    synchronize: Callable[[], None]
    time: Callable[[Callable[[], object], int], list[float]]
    cache_bytes: int
    time_cold: Callable[[Callable[[], object], int], list[float]] | None = None


@runtime_checkable
class Device(Protocol):
    """One kind of device. `name` is what `registry.device` is asked for ("cpu", "cuda", "rocm")."""

    name: str

    def is_available(self) -> Availability:
        """Never raises: a missing driver is an answer, not an error."""

    def arch(self) -> str:
        """The architecture name of the current device, as targets write it ("x86-64-v4", "sm_90a")."""

    def load(self, artifact: Artifact) -> LoadedKernel:
        """Loads the binaries. Raises LoadError or DeviceUnavailable."""

    def profile_hooks(self) -> ProfileHooks:
        """Raises DeviceUnavailable if there is no device."""

    def describe(self) -> dict[str, Any]:
        """Facts for `doctor`: plain data, never raises."""
