"""The CUDA driver, through ctypes: which devices there are, loading binaries, events.

Names and numbers are those of the driver API, https://docs.nvidia.com/cuda/cuda-driver-api/. Binaries are loaded as
libraries, whose kernels belong to no context: one handle serves every device of the process.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from typing import Any, NamedTuple

from tile_runtime.tensor_map import BYTES, DATA_TYPES, FILLS, INTERLEAVES, L2_PROMOTIONS, SWIZZLES, TensorMap

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
_MULTIPROCESSOR_COUNT = 16  # CUdevice_attribute
_COMPUTE_CAPABILITY_MAJOR = 75
_COMPUTE_CAPABILITY_MINOR = 76
_L2_CACHE_SIZE = 38
_SHARED_PER_BLOCK_OPTIN = 97
_MAX_DYNAMIC_SHARED = 8  # CUfunction_attribute


class DriverError(Exception):
    """There is no driver, or it refused; the text says which, `status` is the driver's number (0: no driver)."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Found(NamedTuple):
    """One device, in the driver's order (which CUDA_VISIBLE_DEVICES changes)."""

    name: str
    arch: str
    memory_bytes: int


def arch_name(major: int, minor: int) -> str:
    """(9, 0) -> "sm_90a": from Hopper on, only the `a` form has all of the chip's instructions."""
    return f"sm_{major}{minor}" + ("a" if major >= 9 else "")


def device_present() -> bool:
    """Whether this process sees a device, without initializing the driver (which would make later forks unusable)."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    if sys.platform != "linux":
        return True  # the driver itself can tell, at the first launch
    return any(re.fullmatch(r"nvidia\d+|dxg", name) for name in os.listdir("/dev"))  # dxg: Windows' subsystem


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
        number = self.version_number()
        return f"{number // 1000}.{number % 1000 // 10}"

    def version_number(self) -> int:
        """The same as 13000."""
        number = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(number))
        return number.value

    def devices(self) -> list[Found]:
        """The devices of this process. Initializes the driver: a process forked later cannot use CUDA."""
        return [self._device(ordinal) for ordinal in range(self.device_count())]

    def device_count(self) -> int:
        """How many devices this process may use. Initializes the driver."""
        self._call("cuInit", ctypes.c_uint(0))
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def arch(self, ordinal: int) -> str:
        """The architecture of one device, as "sm_90a"."""
        handle = self._handle(ordinal)
        return arch_name(*(self._attribute(a, handle) for a in (_COMPUTE_CAPABILITY_MAJOR, _COMPUTE_CAPABILITY_MINOR)))

    def multiprocessors(self, ordinal: int) -> int:
        """How many multiprocessors a device has. Initializes the driver."""
        self._call("cuInit", ctypes.c_uint(0))
        return self._attribute(_MULTIPROCESSOR_COUNT, self._handle(ordinal))

    # -- binaries ----------------------------------------------------------------------------------------------------

    def load(self, binary: bytes) -> int:
        """A library handle. The driver may put off loading until a kernel of it first runs on a device."""
        library = ctypes.c_void_p()
        nothing, none = ctypes.c_void_p(), ctypes.c_uint(0)
        code = ctypes.c_char_p(binary)
        self._call("cuLibraryLoadData", ctypes.byref(library), code, nothing, nothing, none, nothing, nothing, none)
        return library.value or 0

    def unload(self, library: int) -> None:
        self._call("cuLibraryUnload", ctypes.c_void_p(library))

    def kernel(self, library: int, symbol: str) -> int:
        """The handle of a kernel; a launch takes it as it takes a function."""
        kernel = ctypes.c_void_p()
        self._call(
            "cuLibraryGetKernel", ctypes.byref(kernel), ctypes.c_void_p(library), ctypes.c_char_p(symbol.encode())
        )
        return kernel.value or 0

    def shared_limit(self, ordinal: int) -> int:
        """Bytes of shared memory that a block may have if its kernel asks for them."""
        return self._attribute(_SHARED_PER_BLOCK_OPTIN, self._handle(ordinal))

    def allow_shared(self, kernel: int, size: int, ordinal: int) -> None:
        """Let a kernel be launched with `size` bytes of dynamic shared memory on one device."""
        attribute, device = ctypes.c_int(_MAX_DYNAMIC_SHARED), self._handle(ordinal)
        self._call("cuKernelSetAttribute", attribute, ctypes.c_int(size), ctypes.c_void_p(kernel), device)

    def l2_bytes(self, ordinal: int) -> int:
        return self._attribute(_L2_CACHE_SIZE, self._handle(ordinal))

    @property
    def launch(self) -> Any:
        """`cuLaunchKernelEx(configuration, kernel, params, 0)` over addresses; its result is the status."""
        function = self._library.cuLaunchKernelEx
        if isinstance(function, ctypes._CFuncPtr):  # type: ignore[attr-defined]
            function.argtypes = (ctypes.c_void_p,) * 4
            function.restype = ctypes.c_int
        return function

    def encode_tensor_map(self, tensor_map: TensorMap) -> bytes:
        """The map's 128 bytes (cuTensorMapEncodeTiled). Threads without a context are refused."""
        rank = tensor_map.rank
        memory = ctypes.create_string_buffer(BYTES + 64)
        place = ctypes.addressof(memory) + -ctypes.addressof(memory) % 64
        self._call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(place),
            ctypes.c_int(DATA_TYPES[tensor_map.dtype]),
            ctypes.c_uint(rank),
            ctypes.c_void_p(tensor_map.address),
            (ctypes.c_uint64 * rank)(*tensor_map.shape),
            (ctypes.c_uint64 * max(1, rank - 1))(*tensor_map.strides),
            (ctypes.c_uint32 * rank)(*tensor_map.box),
            (ctypes.c_uint32 * rank)(*tensor_map.steps),
            ctypes.c_int(INTERLEAVES.index(tensor_map.interleave)),
            ctypes.c_int(SWIZZLES.index(tensor_map.swizzle)),
            ctypes.c_int(L2_PROMOTIONS.index(tensor_map.l2_promotion)),
            ctypes.c_int(FILLS.index(tensor_map.fill)),
        )
        return ctypes.string_at(place, BYTES)

    def address(self, function: str) -> int:
        """Where a function of the driver lies, for native code."""
        return ctypes.cast(getattr(self._library, function), ctypes.c_void_p).value or 0

    # -- contexts, memory, events --------------------------------------------------------------------------------------------

    def use_device(self, ordinal: int) -> None:
        """Make the device's primary context (the one that torch uses too) this thread's."""
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._handle(ordinal))
        self._call("cuCtxSetCurrent", context)

    def synchronize(self) -> None:
        self._call("cuCtxSynchronize")

    def allocate(self, size: int) -> int:
        """The address of `size` bytes of the current device."""
        address = ctypes.c_void_p()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value or 0

    def fill(self, address: int, byte: int, size: int, stream: int) -> None:
        """Overwrite memory, in the stream's order."""
        where, value = ctypes.c_void_p(address), ctypes.c_ubyte(byte)
        self._call("cuMemsetD8Async", where, value, ctypes.c_size_t(size), ctypes.c_void_p(stream))

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_void_p(address))

    def events(self, count: int) -> list[ctypes.c_void_p]:
        made = []
        for _ in range(count):
            event = ctypes.c_void_p()
            self._call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
            made.append(event)
        return made

    def record(self, event: ctypes.c_void_p, stream: int) -> None:
        self._call("cuEventRecord", event, ctypes.c_void_p(stream))

    def seconds(self, first: ctypes.c_void_p, second: ctypes.c_void_p) -> float:
        """Time between two events, once the second has happened."""
        milliseconds = ctypes.c_float()
        self._call("cuEventSynchronize", second)
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), first, second)
        return milliseconds.value * 1e-3

    def destroy(self, events: list[ctypes.c_void_p]) -> None:
        for event in events:
            self._call("cuEventDestroy_v2", event)

    # -- helpers -----------------------------------------------------------------------------------------------------

    def _handle(self, ordinal: int) -> ctypes.c_int:
        handle = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(handle), ctypes.c_int(ordinal))
        return handle

    def _attribute(self, attribute: int, handle: ctypes.c_int) -> int:
        number = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(number), ctypes.c_int(attribute), handle)
        return number.value

    def _device(self, ordinal: int) -> Found:
        handle, memory, name = self._handle(ordinal), ctypes.c_size_t(), ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, ctypes.c_int(len(name)), handle)
        self._call("cuDeviceTotalMem_v2", ctypes.byref(memory), handle)
        return Found(name.value.decode(), self.arch(ordinal), memory.value)

    def words(self, status: int) -> str:
        """What the driver says about a status."""
        text = ctypes.c_char_p()
        self._library.cuGetErrorString(ctypes.c_int(status), ctypes.byref(text))
        return text.value.decode() if text.value else "unknown error"

    def _call(self, function: str, *arguments: Any) -> None:
        """Call it; anything but CUDA_SUCCESS is a DriverError with the driver's own words."""
        status = int(getattr(self._library, function)(*arguments))
        if status != 0:
            raise DriverError(f"the CUDA driver refused {function}: {self.words(status)} ({status})", status)
