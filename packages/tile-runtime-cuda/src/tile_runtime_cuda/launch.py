"""Loads the cubins of an artifact and writes CUDA's part of its launcher: one packed block, one driver call.

A launch runs on torch's current stream of the tensors' device. It allocates nothing and never waits, so that it can be
captured in a CUDA graph; what must be done once for a device (checks, permission for large shared memory) is done at the
first launch there, which therefore belongs before the capture.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import re
import struct
import sys
from collections.abc import Callable
from typing import Any

from tile_runtime.artifact import Artifact
from tile_runtime.errors import ArgumentDeviceError, DeviceUnavailable, LoadError, OutputError, TileRuntimeError
from tile_runtime.launch import LoadedKernel
from tile_runtime.launch_source import LaunchSite
from tile_runtime.manifest import Launch, Manifest
from tile_runtime.native import NativeEntry, Vendor, is_usable
from tile_runtime.packed_arguments import argument_format, argument_places, argument_text, narrow_bits
from tile_runtime.tensor_map import TensorMap

from .driver import Driver, DriverError
from .native import KDL_CUDA
from .packing import ATTRIBUTE_BYTES, CONFIG, Slot, attributes

_LOG = logging.getLogger("tile_runtime_cuda.launch")
STATIC_SHARED = 48 << 10  # more than this a kernel must be allowed first (programming guide, "Shared Memory")
_KEPT_TENSOR_MAPS = 4096  # encoding one takes the driver about a microsecond
_INVALID_CONTEXT, _NOT_INITIALIZED, _DO_NOT_FIT = 201, 3, 720  # CUresult


class LaunchError(TileRuntimeError, RuntimeError):
    """The driver refused a launch, or reports that an earlier kernel failed."""

    code = "TLR051"


def load(artifact: Artifact, driver: Driver) -> LoadedKernel:
    """A callable kernel. Raises DeviceUnavailable without a fitting device, LoadError for a binary that is not sound."""
    manifest = artifact.manifest
    if manifest.target.kind != "cuda":
        raise LoadError(f"{manifest.name} was compiled for {manifest.target.kind}, not for CUDA")
    try:
        if (count := driver.device_count()) == 0:
            raise DeviceUnavailable("the CUDA driver offers no device to this process")
        if manifest.min_driver is not None and driver.version_number() < manifest.min_driver:
            need = f"{manifest.min_driver // 1000}.{manifest.min_driver % 1000 // 10}"
            raise DeviceUnavailable(
                f"{manifest.name} needs a driver for CUDA {need}; this one supports {driver.version()}: update the driver"
            )
        arch, text = manifest.target.arch, any(b.kind == "ptx" for b in manifest.binaries)
        found = [driver.arch(ordinal) for ordinal in range(count)]
        if not any(runs_on(arch, device) or (text and compiles_for(arch, device)) for device in found):
            raise DeviceUnavailable(
                f"{manifest.name} was compiled for {arch}, device 0 is {found[0]}: compile it for that"
            )
        kernel = LoadedKernel(artifact, backend := CudaBackend(artifact, driver), backend.libraries)
        entry = backend.native_entry(artifact)
        if entry is not None:
            kernel.use_native(entry)
        return kernel
    except DriverError as error:
        raise DeviceUnavailable(f"{manifest.name} cannot be loaded: {error}") from error


class Libraries:
    """The loaded binaries of one kernel, unloaded with it.

    A cubin `k.cubin` may have its PTX beside it as `k.ptx`: that is what a driver gets whose first device the cubin does
    not run on.
    """

    def __init__(self, artifact: Artifact, driver: Driver) -> None:
        self._artifact, self._driver = artifact, driver
        self._handles: dict[str, int] = {}

    def kernel(self, launch: Launch) -> int:
        """The handle of a launch's kernel; each binary is loaded once."""
        manifest = self._artifact.manifest
        kinds = {b.file: b.kind for b in manifest.binaries}
        if kinds[launch.binary] != "cubin":
            raise LoadError(f"{manifest.name}: {launch.binary} is of kind {kinds[launch.binary]}; CUDA launches cubins")
        file = self._chosen(launch.binary, kinds)
        try:
            if file not in self._handles:
                self._handles[file] = self._driver.load(self._artifact.read(file))
            return self._driver.kernel(self._handles[file], launch.symbol)
        except DriverError as error:
            raise LoadError(
                f"{manifest.name}: {launch.symbol} of {file} (for {manifest.target.arch}): {error}"
            ) from error

    def _chosen(self, cubin: str, kinds: dict[str, str]) -> str:
        """The cubin, or the PTX beside it where that runs on the first device and the cubin does not."""
        text = cubin.removesuffix(".cubin") + ".ptx"
        arch, device = self._artifact.manifest.target.arch, self._driver.arch(0)
        return text if kinds.get(text) == "ptx" and not runs_on(arch, device) and compiles_for(arch, device) else cubin

    def run_on(self, device: str) -> bool:
        """Whether what was loaded runs on a device of this architecture."""
        arch = self._artifact.manifest.target.arch
        return any(
            compiles_for(arch, device) if file.endswith(".ptx") else runs_on(arch, device) for file in self._handles
        )

    def __del__(self) -> None:
        for handle in self._handles.values():
            try:
                self._driver.unload(handle)
            except Exception:  # the process ends and the driver has gone before us
                return


class Ready(set[int]):
    """The devices on which a launch has been prepared; `tell` hears of each new one."""

    def __init__(self) -> None:
        super().__init__()
        self.tell: Callable[[int], None] | None = None

    def add(self, device: int) -> None:
        super().add(device)
        if self.tell is not None:
            self.tell(device)


class CudaBackend:
    """CUDA's lines in a launcher (tile_runtime.launch_source.Backend)."""

    device = "cuda"

    def __init__(self, artifact: Artifact, driver: Driver) -> None:
        self._manifest: Manifest = artifact.manifest
        self._driver = driver
        self.libraries = Libraries(artifact, driver)
        self._alone = driver.device_count() == 1  # then no call asks which device (0.4 us of a call with 4 tensors)
        self._tensor_maps: dict[tuple[Any, ...], bytes] = {}
        self._first = ""  # the variable of the first tensor, which fixes the device
        self._launches: list[tuple[int, Any, Ready]] = []  # of all variants: kernel, attributes, where it is ready

    def native_entry(self, artifact: Artifact) -> NativeEntry | None:
        """The artifact's machine code for launching, if there is some and this process can run it."""
        file = artifact.manifest.native
        if file is None or not is_usable():
            return None
        launches = [(kernel, ctypes.addressof(attributes)) for kernel, attributes, _ in self._launches]
        device_reader = 0 if self._alone else self._driver.address("cuCtxGetDevice")
        launcher = self._driver.address("cuLaunchKernelEx")
        maps = len(artifact.manifest.tensormaps)
        encoder = self._driver.address("cuTensorMapEncodeTiled") if maps else 0
        keep = (self._driver, self._launches)
        vendor = Vendor(KDL_CUDA, launcher, device_reader, launches, keep, encoder, maps)
        try:
            entry = NativeEntry(artifact.read(file), vendor)
        except LoadError as error:
            _LOG.warning("%s is launched from Python: %s", self._manifest.name, error)
            return None
        for number, (_, _, ready) in enumerate(self._launches):
            ready.tell = functools.partial(entry.set_ready, number)
        return entry

    def torch_test(self, name: str) -> str:
        self._first = self._first or name
        if self._alone:
            return f"{name}.is_cuda"
        if name == self._first:
            return f"(device := {name}.get_device()) >= 0"  # -1: in host memory
        return f"{name}.get_device() == device"

    def emit(self, site: LaunchSite, namespace: dict[str, Any]) -> list[str]:
        """Fills a slot of its own (two threads never share one), launches, gives the slot back.

        Called twice for each launch, for plain and for prepared calls; both use what the first call put down.
        """
        n, launch = site.number, site.launch
        if f"fn{n}" not in namespace:
            self._set_up(site, namespace)
        block = attributes(launch, self._cluster(launch))
        place = ctypes.addressof(namespace[f"attributes{n}"]) if block else 0
        values = [argument_text(a) for a in site.arguments]
        size = f"{place}, {len(block) // ATTRIBUTE_BYTES}"
        fields = [*site.grid, *site.block, site.shared, "current_stream(device)", size, *values]
        return [
            *self._choose_device(site),
            f"try: slot = free{n}.pop()",
            f"except IndexError: slot = slot{n}()",
            f"pack{n}(slot.memory, 0, {', '.join(fields)})",
            *([] if self._alone else [f"if device != current_device(): rc = elsewhere{n}(device, slot)", "else:"]),
            f"{'' if self._alone else '    '}rc = cu_launch(slot.config, fn{n}, slot.params, 0)",
            f"if rc: failed{n}(rc, device, slot, {site.shared})",
            f"free{n}.append(slot)",
        ]

    def _choose_device(self, site: LaunchSite) -> list[str]:
        """Lines that set `device`, that of the first tensor, and make the kernel ready there once."""
        n, first = site.number, self._first
        if self._alone:
            return ["device = 0", f"if not ready{n}: make_ready{n}(0, {site.shared})"]
        found = f"{first}.get_device() if type({first}) in torch_types else current_device()"
        return [
            f"device = {found if first else 'current_device()'}",
            f"if device not in ready{n}: make_ready{n}(device, {site.shared})",
        ]

    def _set_up(self, site: LaunchSite, namespace: dict[str, Any]) -> None:
        """Loads the kernel of a launch and puts what its lines use into the namespace."""
        n, launch = site.number, site.launch
        try:
            arguments, places = argument_format(site.arguments), argument_places(site.arguments)
        except KeyError as error:
            raise LoadError(f"{self._manifest.name}: CUDA kernels take no scalar of type {error.args[0]}") from None
        size = struct.calcsize(f"<{arguments}")
        block = attributes(launch, self._cluster(launch))
        kernel, ready, free = self.libraries.kernel(launch), Ready(), list[Slot]()
        kept = ctypes.create_string_buffer(block, max(1, len(block)))
        self._launches.append((kernel, kept, ready))
        namespace |= {
            "cu_launch": self._driver.launch,
            "narrow_bits": narrow_bits,
            f"attributes{n}": kept,
            f"fn{n}": kernel,
            f"ready{n}": ready,
            f"make_ready{n}": self._make_ready(launch, kernel, ready),
            f"free{n}": free,
            f"slot{n}": lambda: Slot(size, places),
            f"pack{n}": struct.Struct(CONFIG + arguments).pack_into,
            f"elsewhere{n}": self._elsewhere(kernel),
            f"failed{n}": self._failed(launch, kernel),
            "tensor_map": self._tensor_map,
            **self._torch_functions(),
        }

    def _tensor_map(self, number: int, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> bytes:
        """The argument for a tensor map. Calls with the same tensors find theirs again."""
        key = (number, address, shape, strides)
        found = self._tensor_maps.get(key)
        if found is None:
            made = TensorMap.of(self._manifest.tensormaps[number], address, shape, strides)
            if len(self._tensor_maps) >= _KEPT_TENSOR_MAPS:
                self._tensor_maps.clear()
            found = self._tensor_maps[key] = self._encoded(made)
        return found

    def _encoded(self, made: TensorMap) -> bytes:
        """The driver's map; in a thread that has no context yet, as that in which torch computes gradients, after it got one."""
        try:
            return self._driver.encode_tensor_map(made)
        except DriverError as error:
            if error.status not in (_INVALID_CONTEXT, _NOT_INITIALIZED):
                raise
        self._driver.use_device(0)  # a thread that had chosen another one would have its context
        return self._driver.encode_tensor_map(made)

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

    def _cluster(self, launch: Launch) -> tuple[int, int, int] | None:
        if launch.cluster is None:
            return None
        x, y, z = launch.cluster
        if not (isinstance(x, int) and isinstance(y, int) and isinstance(z, int)):
            raise LoadError(f"{self._manifest.name}: the extents of a cluster are constants")
        return x, y, z

    def _torch_functions(self) -> dict[str, Callable[..., int]]:
        """How to ask for the current device and stream: torch's own functions, or without torch the defaults."""
        torch = sys.modules.get("torch")
        own: Any = getattr(torch, "_C", None)
        if hasattr(own, "_cuda_getCurrentRawStream"):
            return {"current_stream": own._cuda_getCurrentRawStream, "current_device": own._cuda_getDevice}
        return {"current_stream": late_stream, "current_device": late_device}

    def _make_ready(self, launch: Launch, kernel: int, ready: Ready) -> Callable[[int, int], None]:
        """The first launch on a device: does the binary run there, may it have its shared memory?"""
        name, driver, manifest, libraries = self._manifest.name, self._driver, self._manifest, self.libraries

        def make_ready(device: int, shared: int) -> None:
            found = driver.arch(device)
            if not libraries.run_on(found):
                raise DeviceUnavailable(
                    f"{name} was compiled for {manifest.target.arch}, device {device} is {found}: compile it for that"
                )
            if not isinstance(launch.shared, int) or shared > STATIC_SHARED:
                limit = driver.shared_limit(device)
                if shared > limit:
                    raise DeviceUnavailable(
                        f"{name} ({launch.symbol}) needs {shared} bytes of shared memory; a block on device {device} "
                        f"({found}) has {limit} at most: use smaller tiles or fewer stages"
                    )
                driver.allow_shared(kernel, shared if isinstance(launch.shared, int) else limit, device)
            ready.add(device)

        return make_ready

    def _elsewhere(self, kernel: int) -> Callable[[int, Slot], int]:
        """A launch on a device that is not the current one."""
        name, scratch = self._manifest.name, bool(self._manifest.workspace)

        def elsewhere(device: int, slot: Slot) -> int:
            if scratch:
                raise ArgumentDeviceError(
                    f"{name}: the tensors are on cuda:{device}, its scratch memory on the current device; "
                    f"call it inside torch.cuda.device({device})"
                )
            with sys.modules["torch"].cuda.device(device):
                return int(self._driver.launch(slot.config, kernel, slot.params, 0))

        return elsewhere

    def _failed(self, launch: Launch, kernel: int) -> Callable[[int, int, Slot, int], None]:
        """A refused launch: once more where only this thread's context was missing, else an error."""

        def failed(status: int, device: int, slot: Slot, shared: int) -> None:
            if status in (_INVALID_CONTEXT, _NOT_INITIALIZED):
                self._driver.use_device(device)
                status = int(self._driver.launch(slot.config, kernel, slot.params, 0))
            if status:
                grid = struct.unpack_from("<6I", slot.memory, 0)
                repair = "; T.sync_grid needs all blocks to run at once: launch fewer" if status == _DO_NOT_FIT else ""
                raise LaunchError(
                    f"{self._manifest.name} ({launch.symbol}), grid {grid[:3]}, block {grid[3:]}, {shared} bytes of shared "
                    f"memory: {self._driver.words(status)} ({status}){repair}"
                )

        return failed


_CAPABILITY = re.compile(r"sm_(\d+?)(\d)([af]?)")


def runs_on(binary: str, device: str) -> bool:
    """Whether a cubin for one architecture runs on a device of another.

    Within a major version on the same and on later minor ones; an `a` binary on exactly its own (programming guide,
    "Binary Compatibility", "Architecture-Specific Features").
    """
    wanted, found = _CAPABILITY.fullmatch(binary), _CAPABILITY.fullmatch(device)
    if wanted is None or found is None or wanted[1] != found[1]:
        return False
    return wanted[2] == found[2] if wanted[3] == "a" else int(wanted[2]) <= int(found[2])


def compiles_for(ptx: str, device: str) -> bool:
    """Whether the driver can compile PTX of one architecture for a device of another: the same or a newer one.

    Programming guide, "PTX Compatibility"; PTX of `sm_90a` and the like is for that architecture alone.
    """
    wanted, found = _CAPABILITY.fullmatch(ptx), _CAPABILITY.fullmatch(device)
    if wanted is None or found is None or wanted[3]:
        return False
    return (int(wanted[1]), int(wanted[2])) <= (int(found[1]), int(found[2]))


def late_stream(device: int) -> int:
    """The stream for a kernel that was loaded before torch was: torch's current one, else the default."""
    torch = sys.modules.get("torch")
    return int(torch._C._cuda_getCurrentRawStream(device)) if torch is not None and torch.cuda.is_available() else 0


def late_device() -> int:
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_available() else 0
