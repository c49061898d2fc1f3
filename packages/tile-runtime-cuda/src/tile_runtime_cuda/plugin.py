"""What the entry point `cuda` names: the CUDA side of tile_runtime's device contract, as far as it goes today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tile_runtime.device import Availability
from tile_runtime.errors import DeviceUnavailable

from .driver import Driver, DriverError

if TYPE_CHECKING:
    from tile_runtime.artifact import Artifact
    from tile_runtime.device import ProfileHooks
    from tile_runtime.launch import LoadedKernel

NOT_YET = "this release compiles kernels for cpu; CUDA code generation is not in it"


class CudaDevice:
    """Finds the machine's CUDA devices and says why no kernel runs on them yet."""

    name = "cuda"

    def is_available(self) -> Availability:
        """Never ok in this release. Cheap, and does not initialize the driver."""
        try:
            return Availability(False, f"the driver supports CUDA {Driver().version()}, but {NOT_YET}")
        except DriverError as error:
            return Availability(False, str(error))

    def arch(self) -> str:
        """Architecture of the first device, as "sm_90a". Raises DeviceUnavailable without one."""
        try:
            devices = Driver().devices()
        except DriverError as error:
            raise DeviceUnavailable(str(error)) from error
        if not devices:
            raise DeviceUnavailable("the CUDA driver offers no device to this process")
        return devices[0].arch

    def load(self, artifact: Artifact) -> LoadedKernel:
        """Raises DeviceUnavailable in this release."""
        raise DeviceUnavailable(f"{artifact.manifest.name} cannot be loaded: {self.is_available().reason}")

    def profile_hooks(self) -> ProfileHooks:
        """Raises DeviceUnavailable in this release."""
        raise DeviceUnavailable(self.is_available().reason)

    def describe(self) -> dict[str, Any]:
        """Driver version and devices (initializes the driver); what the driver refused under `error`."""
        facts: dict[str, Any] = {}
        try:
            driver = Driver()
            facts["driver"] = driver.version()
            facts["devices"] = [device._asdict() for device in driver.devices()]
        except DriverError as error:
            facts["error"] = str(error)
        return facts


DEVICE = CudaDevice()
