"""The HIP runtime, through the package hip-python: devices, modules, launches, events.

Functions: https://rocm.docs.amd.com/projects/HIP/en/latest/reference/hip_runtime_api_reference.html. Each returns a tuple
whose first entry is the status. The package imports without ROCm; its first call is what fails then.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

from .driver import LIBRARY

INSTALL = "pip install 'tile-runtime-rocm[hip]'"


class HipError(Exception):
    """The runtime or its binding is missing, or it refused a call; `status` is HIP's number (0: none)."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Runtime:
    """HIP's functions with their statuses checked. Making one initializes nothing."""

    def __init__(self, hip: Any = None) -> None:
        """Raises HipError where the binding is not installed. A test gives a module of its own."""
        try:
            self._hip = hip if hip is not None else importlib.import_module("hip").hip
        except ImportError as error:
            raise HipError(f"the package hip-python is not installed: {INSTALL}") from error

    def device_count(self) -> int:
        return int(self._call("hipGetDeviceCount"))

    def arch(self, ordinal: int) -> str:
        """The architecture of a device, as "gfx942", without what the driver adds to it ("gfx942:sramecc+:xnack-")."""
        name = self._call("hipGetDeviceProperties", ordinal).gcnArchName
        return (name.decode() if isinstance(name, bytes) else str(name)).partition(":")[0]

    def lds_limit(self, ordinal: int) -> int:
        """Bytes of LDS that a block may have."""
        return self._attribute("hipDeviceAttributeMaxSharedMemoryPerBlock", ordinal)

    def l2_bytes(self, ordinal: int) -> int:
        return self._attribute("hipDeviceAttributeL2CacheSize", ordinal)

    # -- binaries: modules and functions belong to the device that was current when they were made ----------------------

    def current_device(self) -> int:
        return int(self._call("hipGetDevice"))

    def use_device(self, ordinal: int) -> None:
        self._call("hipSetDevice", ordinal)

    def load(self, code_object: bytes) -> Any:
        return self._call("hipModuleLoadData", code_object)

    def unload(self, module: Any) -> None:
        self._call("hipModuleUnload", module)

    def function(self, module: Any, symbol: str) -> Any:
        return self._call("hipModuleGetFunction", module, symbol.encode())

    @property
    def launch(self) -> Any:
        """hipModuleLaunchKernel(function, grid x 3, block x 3, bytes of LDS, stream, None, extra) -> (status,)"""
        return self._hip.hipModuleLaunchKernel

    def address(self, name: str) -> int:
        """Where a function of the runtime's library lies, for native code; 0 where the library cannot be asked."""
        own = getattr(self._hip, "tl_addresses", None)  # a test's runtime has functions of its own
        if own is not None:
            return int(own.get(name, 0))
        try:
            return ctypes.cast(getattr(ctypes.CDLL(LIBRARY), name), ctypes.c_void_p).value or 0
        except (OSError, AttributeError):
            return 0

    # -- time ----------------------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        self._call("hipDeviceSynchronize")

    def allocate(self, size: int) -> Any:
        """`size` bytes of the current device."""
        return self._call("hipMalloc", size)

    def fill(self, memory: Any, byte: int, size: int, stream: int) -> None:
        """Overwrite memory, in the stream's order."""
        self._call("hipMemsetAsync", memory, byte, size, stream)

    def free(self, memory: Any) -> None:
        self._call("hipFree", memory)

    def events(self, count: int) -> list[Any]:
        return [self._call("hipEventCreate") for _ in range(count)]

    def record(self, event: Any, stream: int) -> None:
        self._call("hipEventRecord", event, stream)

    def seconds(self, first: Any, second: Any) -> float:
        """Time between two events, once the second has happened."""
        self._call("hipEventSynchronize", second)
        return float(self._call("hipEventElapsedTime", first, second)) * 1e-3

    def destroy(self, events: list[Any]) -> None:
        for event in events:
            self._call("hipEventDestroy", event)

    # -- helpers -------------------------------------------------------------------------------------------------------

    def words(self, status: Any) -> str:
        """What the runtime says about a status."""
        text = self._hip.hipGetErrorString(self._hip.hipError_t(int(status)))
        text = text[-1] if isinstance(text, tuple) else text
        return text.decode() if isinstance(text, bytes) else str(text)

    def _attribute(self, name: str, ordinal: int) -> int:
        return int(self._call("hipDeviceGetAttribute", getattr(self._hip.hipDeviceAttribute_t, name), ordinal))

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call it; anything but hipSuccess is a HipError with the runtime's own words."""
        try:
            status, *results = getattr(self._hip, name)(*arguments)
        except RuntimeError as error:  # of the binding: it found no library
            raise HipError(f"the HIP runtime cannot be opened: {error}") from error
        if int(status) != 0:
            raise HipError(f"the HIP runtime refused {name}: {self.words(status)} ({int(status)})", int(status))
        return results[0] if results else None
