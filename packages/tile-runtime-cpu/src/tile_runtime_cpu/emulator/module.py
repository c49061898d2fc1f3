"""A compiled kernel text, and launching it."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tile_runtime.errors import ArgumentCountError, ArgumentTypeError, ScalarRangeError
from tile_runtime.tensor_map import BYTES, TensorMap

from . import compiler
from .meanings import Caller, Meanings
from .placement import Placement
from .program import Program, SharedTile
from .report import COUNTERS, Buffer, Finding, RawFinding, Report, Scene, explain, standing
from .tensor_map import encode

_MAX_FINDINGS = 16
_SHARED_BYTES = 232448
_CLUSTER_BLOCKS, _CLUSTER_THREADS = 16, 4096

Hook: TypeAlias = "Callable[[tuple[int, int, int], np.ndarray[Any, Any]], None]"
_HOOK = ctypes.CFUNCTYPE(None, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p)
_STOP = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_uint, ctypes.c_uint, ctypes.c_uint, ctypes.c_void_p)

#: Type codes of include/tl/entry.h.
_SCALARS: dict[str, Any] = {
    "b": ctypes.c_int8,
    "h": ctypes.c_int16,
    "i": ctypes.c_int32,
    "q": ctypes.c_int64,
    "f": ctypes.c_float,
    "d": ctypes.c_double,
    "p": ctypes.c_void_p,
}


class _Window(ctypes.Structure):
    """struct Window of runtime/state.h."""

    _fields_ = (("line", ctypes.c_int), ("low", ctypes.c_uint32), ("high", ctypes.c_uint32))


class _Settings(ctypes.Structure):
    _fields_ = (
        ("seed", ctypes.c_uint64),
        ("late", ctypes.c_int),
        ("checks", ctypes.c_int),
        ("warp_size", ctypes.c_int),
        ("processes", ctypes.c_int),
        ("timeout_seconds", ctypes.c_double),
        ("worthwhile_seconds", ctypes.c_double),
        ("cluster", ctypes.c_uint * 3),
    )


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("low", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("writable", ctypes.c_int),
        ("initialized", ctypes.c_int),
    )


#: Work, in seconds of one core, that is worth asking other processes for: each costs about 10 ms.
_WORTHWHILE_SECONDS = 0.1

#: The runtime runs one block at a time, in one thread; a process has one.
_ONE_LAUNCH = threading.Lock()


@functools.lru_cache(maxsize=2)
def _runtime(path: Path) -> Any:
    library = ctypes.CDLL(str(path))
    library.tl_emu_output.restype = ctypes.c_char_p
    library.tl_emu_image_base.restype = ctypes.c_uint64
    pointer, integer = ctypes.c_void_p, ctypes.c_int
    library.tl_emu_launch.argtypes = [pointer] * 4 + [ctypes.c_uint] + [pointer] * 2 + [integer, pointer, pointer]
    library.tl_emu_shown.argtypes = [integer, pointer]
    library.tl_emu_set_windows.argtypes = [pointer, integer]
    return library


class Standstill(NamedTuple):
    """A block whose threads have come to a stop, or wait for others. `moved`: where a buffer's address is now."""

    stop: int
    block: tuple[int, int, int]
    threads: int
    shared: int  # address
    moved: Callable[[int], int]
    shown: Callable[[int], list[int]]  # by slot: the array's address in each thread, 0 where it is not in scope


class EmulatedModule:
    """A kernel text compiled for the host. `symbols` are its kernels."""

    def __init__(self, source: str, library: Path, meanings: Meanings | None = None) -> None:
        self.source = source
        self.symbols = compiler.kernel_names(source)
        self._path = library
        self._meanings = Caller(meanings or {})
        self._asks_python = "tl_emu_meaning(" in source  # which copies of this process must not
        self._runtime = _runtime(compiler.runtime_library(compiler.host_compiler()))
        self._library = ctypes.CDLL(str(library))
        #: Lanes of a warp, which the device header of the text says.
        self.warp_size: int = self._library.tl_emu_warp_size()
        self._lines: dict[int, list[int]] = {}

    def launch(
        self,
        symbol: str,
        grid: Sequence[int],
        block: Sequence[int],
        dynamic_shared_bytes: int,
        args: Sequence[Any],
        *,
        seed: int = 0,
        mode: str = "early",
        checks: bool = True,
        buffers: Sequence[tuple[Any, ...]] | None = None,
        hook: Hook | None = None,
        timeout_seconds: float = 120.0,
        cluster: Sequence[int] = (1, 1, 1),
        processes: int | None = None,
        program: Program | None = None,
        assertions: Sequence[str] = (),
        at_stop: Callable[[Standstill], None] | None = None,
    ) -> Report:
        """Run all blocks; stop at the first block with findings. Blocks of a `cluster` run at the same time.

        `args` are numpy arrays, addresses, numbers and TensorMaps in the order of the kernel's parameters. `buffers` lists all
        global memory as (address, bytes, name, writable[, initialized]); by default it is the arrays among `args`, all
        writable unless numpy says otherwise. The kernel works on copies of them. `seed` 0 runs blocks in order, others
        shuffle them. `mode` says when asynchronous copies move their data: "early", at the issue, or "late", at the wait.
        `hook(block, shared)` is called after each block with its index and its shared memory as bytes. `processes` run the
        blocks, for the same results and findings as one of them (a hook wants one); by default
        TILELANG_EMULATE_PROCESSES, else as many as there are cores, for launches that take long enough. Findings
        speak of the user's lines and tiles where `program` tells them, and of `assertions` by their texts. `at_stop` is
        called at the stops of a text that `stops.prepare` has made.
        """
        if mode not in ("early", "late"):
            raise ValueError(f"mode is {mode!r}; it must be 'early' or 'late'")
        if symbol not in self.symbols:
            raise ValueError(f"the text has no kernel {symbol!r}; it has {', '.join(self.symbols)}")
        extents, threads = _three(grid), _three(block)
        if not 0 < np.prod(threads) <= 1024:
            raise ValueError(f"a block of {threads} threads; 1 to 1024 are possible")
        if not 0 <= dynamic_shared_bytes <= _SHARED_BYTES:
            raise ValueError(f"{dynamic_shared_bytes} bytes of shared memory; 0 to {_SHARED_BYTES} are possible")
        together = _three(cluster)
        if any(n < 1 or extent % n for n, extent in zip(together, extents)):
            raise ValueError(f"clusters of {together} blocks in a grid of {extents}; they must divide it")
        resident = int(np.prod(together)) * -(-int(np.prod(threads)) // self.warp_size) * self.warp_size
        if np.prod(together) > _CLUSTER_BLOCKS or resident > _CLUSTER_THREADS:
            raise ValueError(
                f"clusters of {together} blocks with {threads} threads; the emulator runs {_CLUSTER_BLOCKS} blocks with "
                f"{_CLUSTER_THREADS} threads in all at a time"
            )
        watched = [Buffer(*b) for b in buffers] if buffers is not None else _arrays(args)
        cells = self._cells(symbol, args)
        pointers = (ctypes.c_void_p * max(len(cells), 1))(*[ctypes.addressof(cell) for cell in cells])
        worthwhile = _WORTHWHILE_SECONDS if processes is None else 0.0
        settings = _Settings(
            seed,
            mode == "late",
            checks,
            self.warp_size,
            1 if self._asks_python else processes or _processes(),
            timeout_seconds,
            worthwhile,
            together,
        )
        failure: list[BaseException] = []
        callback = _callback(hook, dynamic_shared_bytes, failure) if hook else None
        entry = ctypes.cast(getattr(self._library, f"tl_emu_entry_{symbol}"), ctypes.c_void_p)
        with _ONE_LAUNCH, Placement([(b.address, b.nbytes, b.writable) for b in watched]) as placement:
            table = _distinct(watched, placement)
            for cell in cells:
                if isinstance(cell, ctypes.c_void_p) and cell.value is not None:
                    cell.value = placement.moved(cell.value)
                elif isinstance(cell, _TensorMapCell):
                    cell.encode(placement)
            self._show_windows(program.windows(symbol) if program else [])
            self._meanings.failure.clear()
            self._runtime.tl_emu_set_meaning(self._meanings.callback)
            stopping = self._stopping(at_stop, placement, int(np.prod(threads)), failure) if at_stop else None
            start = time.perf_counter()
            call = (
                entry,
                pointers,
                (ctypes.c_uint * 3)(*extents),
                (ctypes.c_uint * 3)(*threads),
                dynamic_shared_bytes,
                ctypes.addressof(settings),
                table,
                len(watched),
                ctypes.cast(callback, ctypes.c_void_p) if callback else None,
                ctypes.cast(stopping, ctypes.c_void_p) if stopping else None,
            )
            status = self._runtime.tl_emu_launch(*call)
            if status > 0:  # blocks met: their order has to be that of one process
                settings.processes = 1
                placement.copy_in()
                status = self._runtime.tl_emu_launch(*call)
            seconds = time.perf_counter() - start
            if status:
                raise MemoryError(f"the emulator could not get its memory (status {status})")
            scene = Scene(
                symbol,
                watched,
                dynamic_shared_bytes,
                extents,
                self.warp_size,
                self.source.splitlines(),
                self._source_lines,
                program,
                assertions,
            )
            report = self._report(scene, seconds)
        for failed in (*failure, *self._meanings.failure):
            raise failed
        return report

    def _show_windows(self, tiles: Sequence[SharedTile]) -> None:
        """Tell the runtime which bytes of shared memory each line's pointer is for."""
        table = (_Window * max(len(tiles), 1))()
        for entry, tile in zip(table, tiles):
            entry.line, entry.low, entry.high = tile.line, tile.offset, tile.offset + tile.bytes
        self._runtime.tl_emu_set_windows(table, len(tiles))

    def _stopping(
        self, at_stop: Callable[[Standstill], None], placement: Placement, threads: int, failure: list[BaseException]
    ) -> Any:
        """The callback at stops; an error of the hook ends the launch."""

        def shown(slot: int) -> list[int]:
            addresses = (ctypes.c_void_p * threads)()
            self._runtime.tl_emu_shown(slot, addresses)
            return [int(a or 0) for a in addresses]

        def call(stop: int, x: int, y: int, z: int, shared: int) -> int:
            try:
                at_stop(Standstill(stop, (x, y, z), threads, shared or 0, placement.moved, shown))
            except BaseException as error:  # ctypes would print it and go on
                failure.append(error)
            return len(failure)

        return _STOP(call)

    def _cells(self, symbol: str, args: Sequence[Any]) -> list[Any]:
        """The arguments as C values of the kernel's parameter types."""
        describe = getattr(self._library, f"tl_emu_signature_{symbol}")
        describe.restype = ctypes.c_char_p
        codes = describe().decode()
        if len(codes) != len(args):
            raise ArgumentCountError(f"{symbol} takes {len(codes)} arguments, {len(args)} were given")
        return [_cell(code, value, f"argument {i} of {symbol}") for i, (code, value) in enumerate(zip(codes, args))]

    def _source_lines(self, place: int) -> list[int]:
        """The lines of the device text that a return address leads to, innermost first."""
        if not place:
            return []
        if place not in self._lines:
            offset = place - int(self._runtime.tl_emu_image_base()) - 1
            self._lines[place] = compiler.source_lines(self._path, offset)
        return self._lines[place]

    def _report(self, scene: Scene, seconds: float) -> Report:
        raw = (RawFinding * _MAX_FINDINGS)()
        count = self._runtime.tl_emu_findings(raw, _MAX_FINDINGS)
        numbers = (ctypes.c_uint64 * len(COUNTERS))()
        self._runtime.tl_emu_counters(numbers)
        errors: list[Finding] = [explain(finding, scene) for finding in raw[:count]]
        where: list[str] = []
        if any(f.kind in ("deadlock", "divergence", "exited-lane", "timeout", "barrier-count") for f in errors):
            room = _CLUSTER_THREADS
            operations, barriers, places = (ctypes.c_int * room)(), (ctypes.c_int * room)(), (ctypes.c_uint64 * room)()
            n = self._runtime.tl_emu_standing(operations, barriers, places)
            where = standing(list(zip(operations[:n], barriers[:n], places[:n])), scene)
        output = self._runtime.tl_emu_output().decode(errors="replace")
        return Report(errors, dict(zip(COUNTERS, numbers)), output, seconds, where, self._runtime.tl_emu_processes())


def compile(
    source: str,
    *,
    include_dirs: Sequence[str | os.PathLike[str]] = (),
    arch: str = "",
    meanings: Meanings | None = None,
) -> EmulatedModule:
    """Compile a device text for the host. Raises CompileError, or NoCompilerError where the host has no C++ compiler.

    The text includes `tl_cuda.cuh` (warps of 32) or `tl_hip.h` (waves of 64). `arch` of HIP, such as gfx942, leaves the
    header the instructions that the architecture has; without one it has those of all. `meanings` are Python functions
    for instructions that the header does not know, by the names that the text gives.
    """
    return EmulatedModule(source, compiler.build_kernel(source, include_dirs, arch), meanings)


def _distinct(buffers: list[Buffer], placement: Placement) -> Any:
    """The buffers as the runtime wants them. One that lies within another is that other one, and adds its rights."""
    table = (_Buffer * max(len(buffers), 1))()
    for entry, b in zip(table, buffers):
        inside = [a for a in buffers if a.address <= b.address and b.address + b.nbytes <= a.address + a.nbytes]
        whole = max(inside, key=lambda a: a.nbytes)
        sharing = [a for a in buffers if whole.address <= a.address < whole.address + whole.nbytes]
        entry.low, entry.bytes = placement.moved(whole.address), whole.nbytes
        entry.writable = any(a.writable for a in sharing)
        entry.initialized = any(a.initialized for a in sharing)
    return table


def _processes() -> int:
    """How many processes run a launch's blocks, as far as that pays."""
    chosen = os.environ.get("TILELANG_EMULATE_PROCESSES", "")
    return int(chosen) if chosen else len(os.sched_getaffinity(0))


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = [*extents, 1, 1][:3]
    return int(x), int(y), int(z)


def _arrays(args: Sequence[Any]) -> list[Buffer]:
    found = [(i, a) for i, a in enumerate(args) if isinstance(a, np.ndarray)]
    return [Buffer(a.ctypes.data, a.nbytes, f"argument {i}", bool(a.flags.writeable)) for i, a in found]


class _TensorMapCell(ctypes.Structure):
    """The parameter of type tl::tensor_map."""

    _fields_ = (("opaque", ctypes.c_ubyte * BYTES),)
    value: TensorMap

    def encode(self, placement: Placement) -> None:
        data = encode(self.value, placement.moved(self.value.address))
        ctypes.memmove(ctypes.addressof(self), data, BYTES)


def _cell(code: str, value: Any, what: str) -> Any:
    if code == "T":
        if not isinstance(value, TensorMap):
            raise ArgumentTypeError(f"{what} is a tensor map; give a TensorMap, not {type(value).__name__}")
        cell = _TensorMapCell()
        cell.value = value.check(what)
        return cell
    if code == "p":
        if isinstance(value, np.ndarray):
            return ctypes.c_void_p(value.ctypes.data)
        if value is None or isinstance(value, int):
            return ctypes.c_void_p(value)
        raise ArgumentTypeError(f"{what} is a pointer; give an array or an address, not {type(value).__name__}")
    if isinstance(value, np.ndarray) or not isinstance(value, (int, float, np.number, np.bool_)):
        raise ArgumentTypeError(f"{what} is a number, not {type(value).__name__}")
    if code == "H":
        return ctypes.c_uint16(int(np.float16(value).view(np.uint16)))
    if code == "B":
        return ctypes.c_uint16(_bfloat16_bits(float(value)))
    if code in "fd":
        return _SCALARS[code](float(value))
    bits = 8 * ctypes.sizeof(_SCALARS[code])
    if not -(1 << bits - 1) <= int(value) < 1 << bits:
        raise ScalarRangeError(f"{what} is {value}, which does not fit into {bits} bits")
    return _SCALARS[code](int(value))


def _bfloat16_bits(value: float) -> int:
    bits = int(np.float32(value).view(np.uint32))
    return 0x7FFF if value != value else (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _callback(hook: Hook, shared_bytes: int, failure: list[BaseException]) -> Any:
    def call(x: int, y: int, z: int, shared: int) -> None:
        if failure:
            return
        memory = np.ctypeslib.as_array(ctypes.cast(shared, ctypes.POINTER(ctypes.c_uint8)), (max(shared_bytes, 1),))
        try:
            hook((x, y, z), memory[:shared_bytes].copy())
        except BaseException as error:
            failure.append(error)

    return _HOOK(call)
