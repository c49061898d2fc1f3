"""A HIP runtime that records, with the functions and return values of hip-python, and torch tensors on its devices."""

from __future__ import annotations

import ctypes
import enum
import struct
from types import SimpleNamespace
from typing import Any

import torch


class Status(enum.IntEnum):
    success = 0
    invalid_value = 1
    no_device = 100


class Attribute(enum.Enum):
    hipDeviceAttributeMaxSharedMemoryPerBlock = 74
    hipDeviceAttributeL2CacheSize = 19


class Launched:
    """One recorded launch: sizes, stream, and the bytes of the arguments, found as the runtime finds them."""

    def __init__(self, function: Any, *rest: Any) -> None:
        self.function, self.grid, self.block, self.shared, self.stream = (
            function,
            rest[0:3],
            rest[3:6],
            rest[6],
            rest[7],
        )
        params, extra = rest[8:]
        assert params is None
        words = struct.unpack("<5Q", ctypes.string_at(extra, 40))
        assert (words[0], words[2], words[4]) == (1, 2, 3)  # HIP's end mark is 3, CUDA's 0
        size = ctypes.c_uint64.from_address(words[3]).value
        self.arguments = ctypes.string_at(words[1], size)


class Function(str):
    """A handle as hip-python gives it: an object whose `int` is the address that C functions take."""

    def __int__(self) -> int:
        return 0xF000 + int(self.rpartition(" ")[2])


_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3)
_GET_DEVICE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class RecordingHip:
    """hip-python's module, as far as loading and launching go. `fail` maps a function to the statuses that it gives."""

    hipDeviceAttribute_t = Attribute
    hipError_t = Status

    def __init__(self, arch: str = "gfx942:sramecc+:xnack-", devices: int = 2, lds: int = 65536) -> None:
        self.arch, self.devices, self.lds = arch, devices, lds
        self.current = 0
        self.calls: list[str] = []
        self.launched: list[Launched] = []
        self.loaded: list[tuple[int, bytes]] = []  # device, code object
        self.functions: dict[tuple[int, str], Function] = {}
        self.fail: dict[str, list[int]] = {}
        self.filled: list[int] = []  # bytes of each memset
        self._callbacks = {"hipModuleLaunchKernel": _LAUNCH(self._launched), "hipGetDevice": _GET_DEVICE(self._device)}

    @property
    def tl_addresses(self) -> dict[str, int]:
        """The functions that native code calls: they record as those of the module do."""
        return {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in self._callbacks.items()}

    def _launched(self, function: int, *rest: Any) -> int:
        *sizes, stream, params, extra = rest
        self.launched.append(Launched(function, *sizes, stream or 0, params, extra))
        return self.fail["native"].pop(0) if self.fail.get("native") else 0

    def _device(self, out: int) -> int:
        ctypes.c_int.from_address(out).value = self.current
        return 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("hip"):
            raise AttributeError(name)

        def function(*arguments: Any) -> tuple[Any, ...]:
            self.calls.append(name)
            if self.fail.get(name):
                return (Status(self.fail[name].pop(0)), None)
            result = getattr(self, f"do_{name}", lambda *_: ())(*arguments)
            return (Status.success, *result)

        return function

    def do_hipGetDeviceCount(self) -> tuple[int]:
        return (self.devices,)

    def do_hipGetDevice(self) -> tuple[int]:
        return (self.current,)

    def do_hipSetDevice(self, ordinal: int) -> tuple[()]:
        self.current = ordinal
        return ()

    def do_hipGetDeviceProperties(self, ordinal: int) -> tuple[Any]:
        return (SimpleNamespace(gcnArchName=self.arch.encode()),)

    def do_hipDeviceGetAttribute(self, attribute: Attribute, ordinal: int) -> tuple[int]:
        return ({74: self.lds, 19: 4 << 20}[attribute.value],)

    def do_hipModuleLoadData(self, image: bytes) -> tuple[int]:
        self.loaded.append((self.current, image))
        return (0x1000 + self.current,)

    def do_hipModuleGetFunction(self, module: int, name: bytes) -> tuple[str]:
        assert module == 0x1000 + self.current
        place = (self.current, name.decode())
        return (self.functions.setdefault(place, Function(f"{name.decode()} on {self.current}")),)

    def do_hipModuleLaunchKernel(self, *arguments: Any) -> tuple[()]:
        self.launched.append(Launched(*arguments))
        return ()

    def do_hipGetErrorString(self, status: Status) -> tuple[bytes]:
        return (b"invalid argument",)

    def do_hipMalloc(self, size: int) -> tuple[int]:
        return (0x5000,)

    def do_hipMemsetAsync(self, memory: int, byte: int, size: int, stream: int) -> tuple[()]:
        assert memory == 0x5000
        self.filled.append(size)
        return ()

    def do_hipEventCreate(self) -> tuple[object]:
        return (object(),)

    def do_hipEventElapsedTime(self, first: Any, second: Any) -> tuple[float]:
        return (0.5,)


class OnDevice(torch.Tensor):
    """A tensor in host memory that says it is on the first AMD GPU, or on the one in `ordinal`; torch calls it cuda."""

    ordinal = 0

    @property
    def is_cuda(self) -> bool:
        return True

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.ordinal)

    def get_device(self) -> int:
        return self.ordinal


class OnSecond(OnDevice):
    ordinal = 1


def tensor(*shape: int, dtype: Any = torch.float32, kind: Any = OnDevice) -> Any:
    return torch.zeros(*shape, dtype=dtype).as_subclass(kind)
