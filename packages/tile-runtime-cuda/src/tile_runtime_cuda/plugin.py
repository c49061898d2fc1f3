"""What the entry point `cuda` names: the CUDA side of tile_runtime's device contract (tile_runtime.device.Device)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tile_runtime.device import Availability
from tile_runtime.errors import DeviceUnavailable

from .driver import Driver, DriverError, device_present

if TYPE_CHECKING:
    from tile_runtime.artifact import Artifact
    from tile_runtime.device import ProfileHooks
    from tile_runtime.launch import LoadedKernel
    from tile_runtime.manifest import Manifest

    from .build import Cubin


class CudaDevice:
    """The machine's CUDA devices. Nothing is opened before it is asked for; asking whether there is one initializes nothing."""

    name = "cuda"

    def __init__(self) -> None:
        self._opened: Driver | None = None

    def is_available(self) -> Availability:
        """Whether there are a driver and a device. Does not initialize the driver: processes may still fork."""
        try:
            version = Driver().version()
        except DriverError as error:
            return Availability(False, str(error))
        if not device_present():
            return Availability(False, f"the driver supports CUDA {version}, but this process sees no CUDA device")
        return Availability(True, f"the driver supports CUDA {version}")

    def arch(self) -> str:
        """Architecture of the first device, as "sm_90a". Raises DeviceUnavailable without one."""
        try:
            devices = Driver().devices()
        except DriverError as error:
            raise DeviceUnavailable(str(error)) from error
        if not devices:
            raise DeviceUnavailable("the CUDA driver offers no device to this process")
        return devices[0].arch

    def multiprocessors(self, ordinal: int = 0) -> int:
        """How many multiprocessors a device has. Raises DeviceUnavailable without it."""
        try:
            return Driver().multiprocessors(ordinal)
        except DriverError as error:
            raise DeviceUnavailable(str(error)) from error

    def build(
        self,
        source: str,
        *,
        arch: str,
        headers: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        compiler: str = "nvrtc",
        minimal: bool = False,
    ) -> Cubin:
        """CUDA C++ to a cubin; needs neither a device nor a driver. Raises build.BuildError."""
        from .build import build

        return build(source, arch=arch, headers=headers, options=options, compiler=compiler, minimal=minimal)

    def listing(self, cubin: bytes) -> str:
        """A cubin's instructions as text. Raises build.BuildError without nvdisasm."""
        from .listing import listing

        return listing(cubin)

    def native_text(self, manifest: Manifest) -> str | None:
        """LLVM text of a kernel's native entry (tile_runtime.native_source); None for one that Python launches."""
        from .native import text_of

        return text_of(manifest)

    def load(self, artifact: Artifact) -> LoadedKernel:
        """Loads the binaries. Raises DeviceUnavailable without a device, LoadError for an unsound binary."""
        from .launch import load

        return load(artifact, self._driver(artifact.manifest.name))

    def profile_hooks(self) -> ProfileHooks:
        """Events on the current stream. Raises DeviceUnavailable without a device."""
        from .profile import hooks

        driver = self._driver("the profiler")
        try:
            if not driver.device_count():
                raise DeviceUnavailable("the CUDA driver offers no device to this process")
            return hooks(driver)
        except DriverError as error:
            raise DeviceUnavailable(str(error)) from error

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

    def _driver(self, what: str) -> Driver:
        """The driver, opened once."""
        if self._opened is None:
            try:
                self._opened = Driver()
            except DriverError as error:
                raise DeviceUnavailable(
                    f"{what} cannot run: {error}. To run it here, set TILELANG_EXECUTION=emulate, or compile for the "
                    "CPU with TILELANG_TARGET_OVERRIDE=cpu"
                ) from error
        return self._opened


DEVICE = CudaDevice()
