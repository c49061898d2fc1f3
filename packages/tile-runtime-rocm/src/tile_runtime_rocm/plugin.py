"""What the entry point `rocm` names: the ROCm side of tile_runtime's device contract (tile_runtime.device.Device)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from tile_runtime.device import Availability
from tile_runtime.errors import DeviceUnavailable

from . import driver
from .runtime import INSTALL, HipError, Runtime

if TYPE_CHECKING:
    from tile_runtime.artifact import Artifact
    from tile_runtime.device import ProfileHooks
    from tile_runtime.launch import LoadedKernel
    from tile_runtime.manifest import Manifest

    from .build import CodeObject

NO_DEVICE = "the kernel driver (amdkfd) shows no AMD GPU"


class RocmDevice:
    """The machine's AMD GPUs. Nothing is opened before it is asked for; asking whether there is one initializes nothing."""

    name = "rocm"

    def __init__(self) -> None:
        self._opened: Runtime | None = None

    def is_available(self) -> Availability:
        """Whether there are a device, the HIP runtime and its binding. Opens no device: processes may still fork."""
        found = ", ".join(device.arch for device in driver.devices())
        if not found:
            return Availability(False, NO_DEVICE)
        version = driver.runtime_version()
        if version is None:
            return Availability(
                False, f"found {found}, but the HIP runtime (libamdhip64) cannot be opened: install ROCm"
            )
        if find_spec("hip") is None:
            return Availability(False, f"found {found} and HIP {version}, but hip-python is not installed: {INSTALL}")
        return Availability(True, f"found {found}, HIP {version}")

    def arch(self) -> str:
        """Architecture of the first device, as "gfx942". Raises DeviceUnavailable without one."""
        devices = driver.devices()
        if not devices:
            raise DeviceUnavailable(NO_DEVICE)
        return devices[0].arch

    def build(
        self,
        source: str,
        *,
        arch: str,
        headers: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        compiler: str = "",
    ) -> CodeObject:
        """HIP C++ to a code object; needs neither a device nor ROCm. Raises build.BuildError."""
        from .build import build

        return build(source, arch=arch, headers=headers, options=options, compiler=compiler)

    def native_text(self, manifest: Manifest) -> str | None:
        """LLVM text of a kernel's native entry (tile_runtime.native_source); None for one that Python launches."""
        from .native import text_of

        return text_of(manifest)

    def load(self, artifact: Artifact) -> LoadedKernel:
        """Loads the binaries. Raises DeviceUnavailable without a device, LoadError for an unsound binary."""
        from .launch import load

        return load(artifact, self._runtime(artifact.manifest.name))

    def profile_hooks(self) -> ProfileHooks:
        """Events on the current stream. Raises DeviceUnavailable without a device."""
        from .profile import hooks

        try:
            return hooks(self._runtime("the profiler"))
        except HipError as error:
            raise DeviceUnavailable(str(error)) from error

    def describe(self) -> dict[str, Any]:
        """Version of the HIP runtime (None: not installed) and the devices."""
        return {"runtime": driver.runtime_version(), "devices": [device._asdict() for device in driver.devices()]}

    def _runtime(self, what: str) -> Runtime:
        """The HIP runtime, opened once."""
        if self._opened is None:
            try:
                available = self.is_available()
                if not available.ok:
                    raise HipError(available.reason)
                self._opened = Runtime()
            except HipError as error:
                raise DeviceUnavailable(
                    f"{what} cannot run: {error}. To run it here, set TILELANG_EXECUTION=emulate, or compile for the "
                    "CPU with TILELANG_TARGET_OVERRIDE=cpu"
                ) from error
        return self._opened


DEVICE = RocmDevice()
