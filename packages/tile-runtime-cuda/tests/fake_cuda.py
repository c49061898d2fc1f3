"""A CUDA driver that records, and torch tensors that say they are on its devices."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import torch

from tile_runtime_cuda.packing import CONFIG, CONFIG_BYTES

_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
_GET_DEVICE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, *[ctypes.c_void_p] * 5, *[ctypes.c_int] * 4
)
_FUNCTIONS = {"cuLaunchKernelEx": _LAUNCH, "cuCtxGetDevice": _GET_DEVICE, "cuTensorMapEncodeTiled": _ENCODE}


class Launched:
    """One recorded launch: the configuration, and the bytes of the arguments, up to a multiple of 8."""

    def __init__(self, config: int, kernel: int, params: int, count: int) -> None:
        memory = ctypes.string_at(config, CONFIG_BYTES)
        fields = struct.unpack(CONFIG, memory)
        self.grid, self.block, self.shared, self.stream = fields[0:3], fields[3:6], fields[6], fields[7]
        self.attributes = ctypes.string_at(fields[8], 72 * fields[9]) if fields[9] else b""
        self.kernel = kernel
        first = config + CONFIG_BYTES
        self.arguments = ctypes.string_at(first, params - first)
        addresses = struct.unpack(f"<{count}Q", ctypes.string_at(params, 8 * count))
        self.places = [address - first for address in addresses]

    def holds(self, arguments: bytes) -> bool:
        """Whether these are the arguments, and nothing more."""
        return self.arguments[: len(arguments)] == arguments and len(self.arguments) - len(arguments) in range(8)


class RecordingDriver:
    """libcuda's functions, as far as loading and launching go. `fail` maps a function to the status that it gives."""

    def __init__(self, capability: tuple[int, int] = (9, 0), devices: int = 2, shared_limit: int = 232448) -> None:
        self.capability, self.devices, self.shared_limit = capability, devices, shared_limit
        self.capabilities: dict[int, tuple[int, int]] = {}  # of devices that are others
        self.calls: list[str] = []
        self.launched: list[Launched] = []
        self.allowed: list[tuple[int, int, int]] = []  # kernel, bytes, device
        self.fail: dict[str, list[int]] = {}
        self.kernels: dict[str, int] = {}
        self.encoded: list[tuple[Any, ...]] = []  # tensor maps: what the driver was told
        self.callbacks: dict[str, Any] = {}
        self.argument_count = 1  # addresses of arguments that a launch records
        self.filled: list[int] = []  # bytes of each memset
        self.current = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def function(*arguments: Any) -> int:
            self.calls.append(name)
            if self.fail.get(name):
                return self.fail[name].pop(0)
            getattr(self, f"do_{name}", lambda *_: None)(*arguments)
            return 0

        if name in _FUNCTIONS:  # native code calls these too: as C functions
            self.callbacks[name] = self.callbacks.get(name) or _FUNCTIONS[name](function)
            return self.callbacks[name]
        return function

    def do_cuDriverGetVersion(self, out: Any) -> None:
        out._obj.value = 13000

    def do_cuDeviceGetCount(self, out: Any) -> None:
        out._obj.value = self.devices

    def do_cuDeviceGet(self, out: Any, ordinal: Any) -> None:
        out._obj.value = ordinal.value

    def do_cuDeviceGetAttribute(self, out: Any, attribute: Any, handle: Any) -> None:
        major, minor = self.capabilities.get(handle.value, self.capability)
        known = {75: major, 76: minor, 97: self.shared_limit, 38: 50 << 20}
        out._obj.value = known[attribute.value]

    def do_cuLibraryLoadData(self, out: Any, code: Any, *rest: Any) -> None:
        out._obj.value = 0x1000

    def do_cuLibraryGetKernel(self, out: Any, library: Any, symbol: Any) -> None:
        assert library.value == 0x1000
        out._obj.value = self.kernels.setdefault(symbol.value.decode(), 0x2000 + len(self.kernels))

    def do_cuKernelSetAttribute(self, attribute: Any, value: Any, kernel: Any, device: Any) -> None:
        assert attribute.value == 8
        self.allowed.append((kernel.value, value.value, device.value))

    def do_cuTensorMapEncodeTiled(self, place: int, kind: int, rank: int, address: int, *rest: int) -> None:
        """The map is the number of the first call that said the same, 128 times."""
        assert place % 64 == 0
        forms = ((ctypes.c_uint64, rank), (ctypes.c_uint64, rank - 1), (ctypes.c_uint32, rank), (ctypes.c_uint32, rank))
        lists = [list((form * n).from_address(at)) if n else [] for (form, n), at in zip(forms, rest)]
        self.encoded.append((kind, rank, address, *lists, *rest[4:]))
        ctypes.memset(place, self.encoded.index(self.encoded[-1]) + 1, 128)

    def do_cuLaunchKernelEx(self, config: int, kernel: int, params: int, extra: int | None) -> None:
        assert not extra
        self.launched.append(Launched(config, kernel, params, self.argument_count))

    def do_cuCtxGetDevice(self, out: int) -> None:
        ctypes.c_int.from_address(out).value = self.current

    def do_cuGetErrorString(self, status: Any, out: Any) -> None:
        out._obj.value = b"invalid argument"

    def do_cuMemAlloc_v2(self, out: Any, size: Any) -> None:
        out._obj.value = 0x5000

    def do_cuMemsetD8Async(self, address: Any, byte: Any, size: Any, stream: Any) -> None:
        assert address.value == 0x5000
        self.filled.append(size.value)

    def do_cuEventElapsedTime(self, out: Any, first: Any, second: Any) -> None:
        out._obj.value = 0.5


class OnDevice(torch.Tensor):
    """A tensor in host memory that says it is on cuda:0, or on the device in `ordinal`."""

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
