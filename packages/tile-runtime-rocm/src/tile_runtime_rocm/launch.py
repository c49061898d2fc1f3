"""Loads the code objects of an artifact and writes HIP's part of its launcher: one packed block, one runtime call.

A launch runs on torch's current stream of the tensors' device. It allocates nothing and never waits, so that it can be
captured in a graph; what must be done once for a device (checks, loading, as HIP's modules belong to one device) is done
at the first launch there, which therefore belongs before the capture.
"""

from __future__ import annotations

import ctypes
import logging
import struct
import sys
from collections.abc import Callable
from typing import Any

from tile_runtime.artifact import Artifact
from tile_runtime.errors import ArgumentDeviceError, DeviceUnavailable, LoadError, OutputError
from tile_runtime.launch import LoadedKernel
from tile_runtime.launch_source import LaunchSite
from tile_runtime.manifest import Launch, Manifest
from tile_runtime.native import NativeEntry, Vendor, is_usable
from tile_runtime.packed_arguments import argument_format, argument_text, narrow_bits

from .errors import LaunchError
from .native import END, KDL_ROCM, POINTER, SIZE
from .runtime import HipError, Runtime

_LOG = logging.getLogger("tile_runtime_rocm.launch")


def load(artifact: Artifact, runtime: Runtime) -> LoadedKernel:
    """A callable kernel. Raises DeviceUnavailable without a fitting device, LoadError for a binary that is not sound."""
    manifest = artifact.manifest
    if manifest.target.kind != "hip":
        raise LoadError(f"{manifest.name} was compiled for {manifest.target.kind}, not for HIP")
    try:
        if runtime.device_count() == 0:
            raise DeviceUnavailable("the HIP runtime offers no device to this process")
        backend = RocmBackend(artifact, runtime)
        kernel = LoadedKernel(artifact, backend, backend.modules)
        entry = backend.native_entry(artifact)
        if entry is not None:
            kernel.use_native(entry)
        return kernel
    except HipError as error:
        raise DeviceUnavailable(f"{manifest.name} cannot be loaded: {error}") from error


class Modules:
    """The loaded binaries of one kernel on each device, unloaded with it."""

    def __init__(self, artifact: Artifact, runtime: Runtime) -> None:
        self._artifact, self._runtime = artifact, runtime
        self._handles: dict[tuple[str, int], Any] = {}

    def check(self, launch: Launch) -> None:
        """Raises LoadError for a launch that HIP does not have."""
        manifest = self._artifact.manifest
        kind = next(b.kind for b in manifest.binaries if b.file == launch.binary)
        if kind != "hsaco":
            raise LoadError(f"{manifest.name}: {launch.binary} is of kind {kind}; HIP launches code objects (hsaco)")
        for name in ("cluster", "cooperative", "pdl"):
            if getattr(launch, name):
                raise LoadError(
                    f"{manifest.name}: {launch.symbol} asks for a {name} launch, which this runtime does not make"
                )

    def function(self, launch: Launch, device: int) -> Any:
        """A launch's kernel on the current device, `device`; each binary is loaded once."""
        manifest, place = self._artifact.manifest, (launch.binary, device)
        try:
            if place not in self._handles:
                self._handles[place] = self._runtime.load(self._artifact.read(launch.binary))
            return self._runtime.function(self._handles[place], launch.symbol)
        except HipError as error:
            raise LoadError(
                f"{manifest.name}: {launch.symbol} of {launch.binary} (for {manifest.target.arch}): {error}"
            ) from error

    def __del__(self) -> None:
        for handle in self._handles.values():
            try:
                self._runtime.unload(handle)
            except Exception:  # the process ends and the runtime has gone before us
                return


class Slot:
    """Memory for one launch at a time: the arguments, and behind them the block that names them, written once.

    `extra` is the address of {1, address of the arguments, 2, address of their size, 3} ("hipModuleLaunchKernel").
    """

    __slots__ = ("extra", "memory")

    def __init__(self, argument_bytes: int) -> None:
        behind = argument_bytes + -argument_bytes % 8
        self.memory = ctypes.create_string_buffer(behind + 6 * 8)
        start = ctypes.addressof(self.memory)
        self.extra = start + behind
        size = self.extra + 5 * 8
        struct.pack_into("<6Q", self.memory, behind, POINTER, start, SIZE, size, END, argument_bytes)


class RocmBackend:
    """HIP's lines in a launcher (tile_runtime.launch_source.Backend). torch's ROCm build calls its devices cuda."""

    device = "rocm"

    def __init__(self, artifact: Artifact, runtime: Runtime) -> None:
        self._manifest: Manifest = artifact.manifest
        self._runtime = runtime
        self.modules = Modules(artifact, runtime)
        self._first = ""  # the variable of the first tensor, which fixes the device
        self._entry: NativeEntry | None = None
        self._launches = 0  # of all variants

    def native_entry(self, artifact: Artifact) -> NativeEntry | None:
        """The artifact's machine code for launching, if there is some and this process can run it."""
        file, launcher = artifact.manifest.native, self._runtime.address("hipModuleLaunchKernel")
        if file is None or not launcher or not is_usable():
            return None
        device_reader = self._runtime.address("hipGetDevice") if self._runtime.device_count() > 1 else 0
        vendor = Vendor(KDL_ROCM, launcher, device_reader, [(0, 0)] * self._launches, (self._runtime, self.modules))
        try:
            self._entry = NativeEntry(artifact.read(file), vendor)
        except LoadError as error:
            _LOG.warning("%s is launched from Python: %s", self._manifest.name, error)
        return self._entry

    def torch_test(self, name: str) -> str:
        self._first = self._first or name
        if name == self._first:
            return f"(device := {name}.get_device()) >= 0"  # -1: in host memory
        return f"{name}.get_device() == device"

    def emit(self, site: LaunchSite, namespace: dict[str, Any]) -> list[str]:
        """Fills a slot of its own (two threads never share one), launches, gives the slot back.

        Called twice for each launch, for plain and for prepared calls; both use what the first call put down.
        """
        n = site.number
        if f"pack{n}" not in namespace:
            self._set_up(site, namespace)
        found = f"{self._first}.get_device() if type({self._first}) in torch_types else current_device()"
        sizes = ", ".join([*site.grid, *site.block, site.shared])
        values = "".join(f", {argument_text(a)}" for a in site.arguments)
        return [
            f"device = {found if self._first else 'current_device()'}",
            f"if device not in functions{n}: make_ready{n}(device, {site.shared})",
            f"try: slot = free{n}.pop()",
            f"except IndexError: slot = slot{n}()",
            f"pack{n}(slot.memory, 0{values})",
            f"call = (functions{n}[device], {sizes}, current_stream(device), None, slot.extra)",
            "rc = hip_launch(*call)[0] if device == current_device() else elsewhere(device, call)",
            f"if rc: failed{n}(rc, call)",
            f"free{n}.append(slot)",
        ]

    def _set_up(self, site: LaunchSite, namespace: dict[str, Any]) -> None:
        """Puts what the lines of a launch use into the namespace."""
        n, launch = site.number, site.launch
        self.modules.check(launch)
        if any(a.kind == "tensormap" for a in site.arguments):
            raise LoadError(f"{self._manifest.name}: AMD GPUs have no tensor maps")
        try:
            arguments = argument_format(site.arguments)
        except KeyError as error:
            raise LoadError(f"{self._manifest.name}: HIP kernels take no scalar of type {error.args[0]}") from None
        size = struct.calcsize(f"<{arguments}")
        functions, free, number = dict[int, Any](), list[Slot](), self._launches
        self._launches += 1
        namespace |= {
            "hip_launch": self._runtime.launch,
            "narrow_bits": narrow_bits,
            "elsewhere": self._elsewhere,
            f"functions{n}": functions,
            f"make_ready{n}": self._make_ready(launch, number, functions),
            f"free{n}": free,
            f"slot{n}": lambda: Slot(size),
            f"pack{n}": struct.Struct(f"<{arguments}").pack_into,
            f"failed{n}": self._failed(launch),
            **torch_functions(),
        }

    def workspace(self, nbytes: int, zero: bool, align: int) -> tuple[object, int]:
        """Memory for one call, from torch's allocator: it is reused in stream order."""
        torch = sys.modules.get("torch")
        if torch is None:
            raise OutputError(f"{self._manifest.name} needs scratch memory, which torch allocates; import it")
        make = torch.zeros if zero else torch.empty
        array = make(max(0, nbytes) + align, dtype=torch.uint8, device="cuda")
        address = array.data_ptr()
        return array, address + -address % align

    # -- what the lines call -----------------------------------------------------------------------------------------

    def _make_ready(self, launch: Launch, number: int, functions: dict[int, Any]) -> Callable[[int, int], None]:
        """The first launch on a device: does the binary run there, may it have its LDS? Loads it."""
        name, runtime, wanted = self._manifest.name, self._runtime, self._manifest.target.arch

        def make_ready(device: int, shared: int) -> None:
            found = runtime.arch(device)
            if found != wanted:
                raise DeviceUnavailable(
                    f"{name} was compiled for {wanted}, device {device} is {found}: compile it for that"
                )
            limit = runtime.lds_limit(device)
            if shared > limit:
                raise DeviceUnavailable(
                    f"{name} ({launch.symbol}) needs {shared} bytes of shared memory; a block on device {device} "
                    f"({found}) has {limit} at most: use smaller tiles or fewer stages"
                )
            before = runtime.current_device()
            runtime.use_device(device)
            try:
                functions[device] = self.modules.function(launch, device)
                if self._entry is not None:
                    self._entry.set_kernel(number, device, int(functions[device]))
            finally:
                runtime.use_device(before)

        return make_ready

    def _elsewhere(self, device: int, call: tuple[Any, ...]) -> int:
        """A launch on a device that is not the current one."""
        if self._manifest.workspace:
            raise ArgumentDeviceError(
                f"{self._manifest.name}: the tensors are on cuda:{device}, its scratch memory on the current device; "
                f"call it inside torch.cuda.device({device})"
            )
        with sys.modules["torch"].cuda.device(device):
            return int(self._runtime.launch(*call)[0])

    def _failed(self, launch: Launch) -> Callable[[int, tuple[Any, ...]], None]:
        def failed(status: int, call: tuple[Any, ...]) -> None:
            raise LaunchError(
                f"{self._manifest.name} ({launch.symbol}), grid {call[1:4]}, block {call[4:7]}, {call[7]} bytes of shared "
                f"memory: {self._runtime.words(status)} ({int(status)})"
            )

        return failed


def torch_functions() -> dict[str, Callable[..., int]]:
    """How to ask for the current device and stream: torch's own functions, or without torch the defaults."""
    own: Any = getattr(sys.modules.get("torch"), "_C", None)
    if hasattr(own, "_cuda_getCurrentRawStream"):
        return {"current_stream": own._cuda_getCurrentRawStream, "current_device": own._cuda_getDevice}
    return {"current_stream": late_stream, "current_device": late_device}


def late_stream(device: int) -> int:
    """The stream for a kernel that was loaded before torch was: torch's current one, else the default."""
    torch = sys.modules.get("torch")
    return int(torch._C._cuda_getCurrentRawStream(device)) if torch is not None and torch.cuda.is_available() else 0


def late_device() -> int:
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_available() else 0
