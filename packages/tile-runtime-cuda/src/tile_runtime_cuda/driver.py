"""The CUDA driver, through ctypes: is there one, and which devices does it offer?

Names and numbers are those of the driver API, https://docs.nvidia.com/cuda/cuda-driver-api/.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, NamedTuple

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_COMPUTE_CAPABILITY_MAJOR = 75  # CUdevice_attribute
_COMPUTE_CAPABILITY_MINOR = 76


class DriverError(Exception):
    """There is no driver, or it refused; the text says which."""


class Found(NamedTuple):
    """One device, in the driver's order (which CUDA_VISIBLE_DEVICES changes)."""

    name: str
    arch: str
    memory_bytes: int


def arch_name(major: int, minor: int) -> str:
    """(9, 0) -> "sm_90a": from Hopper on, only the `a` form has all of the chip's instructions."""
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


class Driver:
    """The driver's library. Opening it asks the driver for nothing; `devices` initializes it."""

    def __init__(self, library: Any = None) -> None:
        """Raises DriverError where the library cannot be opened. A test gives a library of its own."""
        try:
            self._library = library if library is not None else ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise DriverError(f"no CUDA driver: {_LIBRARY} cannot be opened") from error

    def version(self) -> str:
        """The CUDA version that the driver supports, as "13.0". Needs no initialization, so a fork stays safe."""
        number = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(number))
        return f"{number.value // 1000}.{number.value % 1000 // 10}"

    def devices(self) -> list[Found]:
        """The devices of this process. Initializes the driver: a process forked later cannot use CUDA."""
        self._call("cuInit", ctypes.c_uint(0))
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return [self._device(ordinal) for ordinal in range(count.value)]

    def _device(self, ordinal: int) -> Found:
        handle, memory, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
        self._call("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(ordinal))
        self._call("cuDeviceGetName", name, ctypes.c_int(len(name)), handle)
        self._call("cuDeviceTotalMem_v2", ctypes.byref(memory), handle)
        capability = []
        for attribute in (_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR):
            number = ctypes.c_int()
            self._call("cuDeviceGetAttribute", ctypes.byref(number), ctypes.c_int(attribute), handle)
            capability.append(number.value)
        return Found(name.value.decode(), arch_name(*capability), memory.value)

    def _call(self, function: str, *arguments: Any) -> None:
        """Call it; anything but CUDA_SUCCESS is a DriverError with the driver's own words."""
        status = int(getattr(self._library, function)(*arguments))
        if status != 0:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(ctypes.c_int(status), ctypes.byref(text))
            words = text.value.decode() if text.value else "unknown error"
            raise DriverError(f"the CUDA driver refused {function}: {words} ({status})")
