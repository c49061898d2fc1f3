"""What the entry point `rocm` names: the ROCm side of tile_runtime's device contract, as far as it goes today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tile_runtime.device import Availability
from tile_runtime.errors import DeviceUnavailable

from . import driver

if TYPE_CHECKING:
    from tile_runtime.artifact import Artifact
    from tile_runtime.device import ProfileHooks
    from tile_runtime.launch import LoadedKernel

NO_DEVICE = "the kernel driver (amdkfd) shows no AMD GPU"
NOT_YET = "this release compiles kernels for cpu; HIP code generation is not in it"


class RocmDevice:
    """Finds the machine's AMD GPUs and says why no kernel runs on them yet."""

    name = "rocm"

    def is_available(self) -> Availability:
        """Never ok in this release."""
        found = [device.arch for device in driver.devices()]
        return Availability(False, f"found {', '.join(found)}, but {NOT_YET}" if found else NO_DEVICE)

    def arch(self) -> str:
        """Architecture of the first device, as "gfx942". Raises DeviceUnavailable without one."""
        devices = driver.devices()
        if not devices:
            raise DeviceUnavailable(NO_DEVICE)
        return devices[0].arch

    def load(self, artifact: Artifact) -> LoadedKernel:
        """Raises DeviceUnavailable in this release."""
        raise DeviceUnavailable(f"{artifact.manifest.name} cannot be loaded: {self.is_available().reason}")

    def profile_hooks(self) -> ProfileHooks:
        """Raises DeviceUnavailable in this release."""
        raise DeviceUnavailable(self.is_available().reason)

    def describe(self) -> dict[str, Any]:
        """Version of the HIP runtime (None: not installed) and the devices."""
        return {"runtime": driver.runtime_version(), "devices": [device._asdict() for device in driver.devices()]}


DEVICE = RocmDevice()
