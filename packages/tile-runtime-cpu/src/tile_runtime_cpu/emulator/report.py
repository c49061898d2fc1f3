"""What a launch found: each finding as data, and as sentences that name the line, the buffer, the threads, the repair."""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tile_runtime.errors import TileRuntimeError

from .finding_texts import (
    AT_BARRIER,
    AT_MBARRIER,
    BAD_WGMMA,
    DONE,
    KINDS,
    MBARRIER,
    OPERATIONS,
    SIGNALS,
    USER_ADVICE,
    WAITS,
)
from .program import Place, Program, SharedTile, global_indices, row_major, shown

COUNTERS = (
    "blocks switches accesses global_read_bytes global_written_bytes shared_read_bytes shared_written_bytes barriers "
    "warp_barriers shuffles votes ldmatrix ldmatrix_wavefronts stmatrix stmatrix_wavefronts mma cp_async cp_async_bytes atomics "
    "global_requests global_sectors shared_requests shared_wavefronts direct_loads "
    "mbarrier_arrivals mbarrier_waits tma_loads tma_stores tma_bytes wgmma "
    "cp_async_requests cp_async_wavefronts"
).split()


class EmulationError(TileRuntimeError, RuntimeError):
    """A kernel did something that hardware does not promise to survive."""

    code = "TLR042"


class RawFinding(ctypes.Structure):
    """struct Finding of runtime/state.h."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("space", ctypes.c_int),
        ("size", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("other", ctypes.c_int),
        ("code", ctypes.c_int),
        ("block", ctypes.c_uint32 * 3),
        ("repeats", ctypes.c_uint32),
        ("offset", ctypes.c_int64),
        ("pc", ctypes.c_uint64),
        ("other_pc", ctypes.c_uint64),
        ("other_rank", ctypes.c_int),
        ("window", ctypes.c_int),
    )


@dataclass(frozen=True)
class Finding:
    """One mistake of the kernel, at its first occurrence."""

    kind: str
    message: str
    line: int | None  # of the device text; None where the host has no addr2line
    text: str  # that line
    origin: str  # the comment above it, which says where in the user's program it comes from
    buffer: str  # name, "shared memory", or ""
    element: str  # which of its elements, as "[3, 8:16]"; "" where that is not known
    offset: int  # bytes from the start of the buffer, or of shared memory
    size: int  # bytes of the access
    block: tuple[int, int, int]
    threads: tuple[int, ...]  # the one that was stopped, then the one it collides with
    other_line: int | None
    advice: str
    repeats: int = 1
    code: int = 0  # of a device-assert: the number of its text in the launch's `errors`, from 1
    place: Place | None = None  # the user's statement, and the other one's
    other_place: Place | None = None

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.message}"]
        if self.place:
            lines.append(f"  --> {self.place}   {self.place.text}".rstrip())
        elif self.origin:
            lines.append(f"  --> {self.origin}")
        device = f"line {self.line}: {self.text}" if self.line else "(line unknown)"
        return "\n".join([*lines, f"  device:   {device}", f"  try:      {self.advice}"])


@dataclass(frozen=True)
class Report:
    """What a launch came to. Without errors, all blocks have run."""

    errors: list[Finding]
    counters: dict[str, int]
    output: str = ""  # of tl::print
    seconds: float = 0.0
    standing: list[str] = field(default_factory=list)  # where the threads stood when a block was stopped
    processes: int = 1  # that ran the blocks

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.errors

    def check(self) -> Report:
        """Itself; raises EmulationError if something was found."""
        if self.errors:
            raise EmulationError(str(self))
        return self

    def __str__(self) -> str:
        lines = [str(finding) for finding in self.errors]
        if self.standing:
            lines.append("where the block's warps stand:\n" + "\n".join(f"    {text}" for text in self.standing))
        return "\n".join(lines) or "no findings"


class Buffer(NamedTuple):
    """Global memory that the kernel may touch. `initialized` false: reading what nobody wrote is an error.

    `itemsize` in bytes, `shape` and `strides` in elements name elements in findings, where they are given.
    """

    address: int
    nbytes: int
    name: str
    writable: bool
    initialized: bool = True
    itemsize: int = 1
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()


@dataclass(frozen=True)
class Scene:
    """What words need of a launch: its memory, the grid, the text, and what is known of the program behind it."""

    symbol: str
    buffers: Sequence[Buffer]
    shared_bytes: int
    grid: tuple[int, int, int]
    warp_size: int
    source: list[str]
    lines_of: Callable[[int], list[int]]  # of an address in the kernel, innermost first
    program: Program | None = None
    assertions: Sequence[str] = ()

    def line_of(self, address: int) -> int | None:
        """The line of the text for an address: the innermost one that is somebody's statement, where that is known."""
        lines = self.lines_of(address)
        return next((line for line in lines if self.place(line)), lines[0] if lines else None)

    def place(self, line: int | None) -> Place | None:
        return self.program.place(line) if self.program else None

    def locate(self, raw: RawFinding) -> tuple[str, str]:
        """(buffer, elements) of an access, as far as they have names."""
        if raw.space == -1 and raw.window and self.program:
            return self.program.windows(self.symbol)[raw.window - 1].name, ""
        if raw.space == -1:
            tiles = self.program.shared(self.symbol, raw.offset) if self.program else []
            if len(tiles) == 1:
                return tiles[0].name, shown(tiles[0].indices(raw.offset, raw.size))
            return " or ".join(tile.name for tile in tiles) or "shared memory", ""
        if raw.space < 0:
            return "", ""
        buffer = self.buffers[raw.space]
        if not buffer.shape:
            return buffer.name, ""
        strides = buffer.strides or row_major(buffer.shape)
        return buffer.name, global_indices(raw.offset, raw.size, buffer.itemsize, buffer.shape, strides)

    def where(self, raw: RawFinding) -> str:
        """The accessed bytes, in words."""
        name, element = self.locate(raw)
        if not name:
            return f"address {raw.offset & (1 << 64) - 1:#x}, which belongs to no buffer"
        buffer = self.buffers[raw.space] if raw.space >= 0 else None
        capacity = buffer.nbytes if buffer else self.shared_bytes
        count = f"{raw.size} byte{'s' if raw.size != 1 else ''}"
        if raw.space == -1 and raw.window and self.program:
            return f"{count} at {self.beyond_tile(raw, self.program.windows(self.symbol)[raw.window - 1])}"
        if raw.offset < 0:
            return f"{count} at {-raw.offset} bytes before {name}"
        beyond = raw.offset + raw.size > capacity
        if element:
            shape = f", outside of its shape {buffer.shape}" if beyond and buffer else ""
            return f"{name}{element}{shape}"
        return f"{count} at offset {raw.offset} of {name}" + (f", which ends at {capacity}" if beyond else "")

    def beyond_tile(self, raw: RawFinding, tile: SharedTile) -> str:
        """The place of an access that left the tile whose pointer it was made through, and what is there."""
        assert self.program is not None
        distance = raw.offset - tile.offset
        side = f"offset {distance} of" if distance >= 0 else f"{-distance} bytes before"
        there = [
            other.name + shown(other.indices(raw.offset, raw.size))
            for other in self.program.shared(self.symbol, raw.offset)
            if other is not tile
        ]
        what = f"where {' or '.join(there)} is" if there else "where no other buffer is"
        return f"{side} {tile.name}, which has {tile.bytes} bytes: {what}"


def explain(raw: RawFinding, scene: Scene) -> Finding:
    """A finding of the runtime in words."""
    kind, sentence, advice = KINDS[raw.kind]
    line, other_line = scene.line_of(raw.pc), scene.line_of(raw.other_pc)
    place, other_place = scene.place(line), scene.place(other_line)
    block, grid = (raw.block[0], raw.block[1], raw.block[2]), scene.grid
    other_at = str(other_place) if other_place else f"line {other_line}" if other_line else ""
    known = 0 < raw.code <= len(scene.assertions)
    fields: dict[str, Any] = {
        "where": scene.where(raw),
        "other": _other(raw),
        "other_line": f" ({other_at})" if other_at else "",
        "block": "",
        "size": raw.size,
        "code": scene.assertions[raw.code - 1] if kind == "device-assert" and known else raw.code,
        "lane": raw.other % scene.warp_size,
        "operation": "an operation of the whole warp",
        "other_operation": OPERATIONS[raw.code] if 0 <= raw.code < len(OPERATIONS) else "another operation",
        "signal": SIGNALS.get(raw.code, f"signal {raw.code}"),
    }
    if kind == "race-between-blocks" and raw.code > 0:
        number = raw.code - 1
        fields["block"] = f" {(number % grid[0], number // grid[0] % grid[1], number // grid[0] // grid[1])}"
    fields["mbarrier"] = _choose(MBARRIER, raw.code).format(**fields)
    fields["over_arrival"] = {
        -1: "arrives at {where}, an mbarrier, which can count 1 to 2^20 - 1 arrivals",
        -2: "arrives at {where}, an mbarrier, and ends a phase while nobody has waited for the one before",
        -3: "waits for {where}, an mbarrier of which two phases have ended with nobody waiting",
    }.get(raw.code, f"arrives at {{where}}, an mbarrier that has all {raw.code} arrivals of its phase already")
    fields["over_arrival"] = fields["over_arrival"].format(**fields)
    fields["bad_wgmma"] = _choose(BAD_WGMMA, raw.code).format(**fields)
    fields["bad_map"] = (
        f"uses a tensor map of rank {raw.code} with another number of coordinates"
        if raw.code
        else "uses no tensor map as one"
    )
    row = f"element {raw.offset} of {raw.size} bytes: {raw.offset * raw.size} bytes into its row, no multiple of 16"
    negative = raw.offset * raw.size % 16 == 0 or raw.code
    fields["coordinate"] = (
        f"that writes a box which begins before the tensor: coordinate {raw.code} is {raw.offset}"
        if negative
        else f"a box that begins at {row}"
    )
    message = f"thread {raw.thread} of block {block} {sentence.format(**fields)}"
    if raw.repeats > 1:
        message += f" (and {raw.repeats - 1} more like it)"
    return Finding(
        kind=kind,
        message=message,
        line=line,
        text=scene.source[line - 1].strip() if line and line <= len(scene.source) else "",
        origin=_origin(scene.source, line),
        buffer=scene.locate(raw)[0],
        element=scene.locate(raw)[1],
        offset=raw.offset,
        size=raw.size,
        block=block,
        threads=(raw.thread,) if raw.other < 0 else (raw.thread, raw.other),
        other_line=other_line,
        advice=USER_ADVICE.get(kind, advice) if place else advice.format(wait=WAITS[scene.warp_size]),
        repeats=raw.repeats,
        code=raw.code,
        place=place,
        other_place=other_place,
    )


def _other(raw: RawFinding) -> str:
    if raw.other_rank >= 0:
        return f"thread {raw.other} of block {raw.other_rank} of the cluster"
    return "the same thread" if raw.other == raw.thread else f"thread {raw.other}"


def _choose(texts: list[str], code: int) -> str:
    return texts[code] if 0 <= code < len(texts) else ""


def _origin(source: list[str], line: int | None) -> str:
    """The nearest comment line above, within 20 lines: the printer puts the user's statement there."""
    for text in reversed(source[max(0, (line or 0) - 20) : line or 0]):
        if text.strip().startswith("//"):
            return text.strip().lstrip("/ ").strip()
    return ""


def standing(threads: Sequence[tuple[int, int, int]], scene: Scene) -> list[str]:
    """Where threads (operation, barrier, place) stand, equal ones together: by warps, by threads, by line."""
    groups: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for number, (operation, barrier, place) in enumerate(threads):
        key = (
            operation,
            barrier if operation in (AT_BARRIER, AT_MBARRIER) else 0,
            0 if operation in (0, DONE) else place,
        )
        groups[key].append(number)
    texts = []
    for (operation, barrier, place), members in groups.items():
        line = scene.line_of(place) if place else None
        user = scene.place(line)
        state = OPERATIONS[operation] if operation in (0, DONE) else f"wait in {OPERATIONS[operation]}"
        detail = f" (barrier {barrier})" if operation == AT_BARRIER and barrier else ""
        detail = f" (mbarrier at offset {barrier} of shared memory)" if operation == AT_MBARRIER else detail
        at = f", {user}   {user.text}".rstrip() if user else f", line {line}" if line else ""
        warps = sorted({n // scene.warp_size for n in members})
        texts.append(f"{_ranges('warp', warps)}, {_ranges('thread', members)}: {state}{detail}{at}")
    return texts


def _ranges(what: str, numbers: list[int]) -> str:
    """thread, [0, 1, 2, 5] -> "threads 0-2, 5"."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    listed = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:8])
    return f"{what}{'s' if len(numbers) > 1 else ''} {listed}" + (", ..." if len(runs) > 8 else "")
