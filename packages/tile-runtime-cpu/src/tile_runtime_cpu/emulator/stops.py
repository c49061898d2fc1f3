"""Stopping at tile operators: a text that waits at its origin comments, and the user's tiles there as numpy arrays.

    // T.gemm (line 12)         ->      tl_emu_stop(7);  // T.gemm (line 12)
    float acc[32];              ->      float acc[32]; tl_emu_shown_t tl_emu_shown_3(3, &acc);

Only a call with a hook runs this text; it has the lines of the other, so findings in it are the same.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tile_runtime.dtypes import numpy_dtype

from .index_map import Ints, over_shape
from .program import Program, RegisterTile, SharedTile
from .report import Buffer

Array: TypeAlias = np.ndarray[Any, Any]

#: Called as hook(operator, block, tiles), as `tilelang.interpret.hook` is.
TileHook: TypeAlias = "Callable[[Operator, tuple[int, ...], Mapping[str, Array]], Any]"

_ORIGIN = re.compile(r"^(\s*)// (T\.\w+) \(line \d+\)$")
_NAME = re.compile(r"(\w+)(?:\[\d+\])?;$")


class Operator(NamedTuple):
    """A tile operator or parallel loop that is about to run. `NAME` is the interpreter's ("" for a loop)."""

    NAME: str
    text: str  # as in the device text: T.reduce_max
    file: str
    line: int


@dataclass(frozen=True)
class Stopping:
    """The prepared text, its stops by number, and the tile that each slot shows."""

    text: str
    operators: list[Operator]
    slots: list[RegisterTile]
    slots_of: dict[str, list[int]]  # by symbol


def prepare(source: str, program: Program) -> Stopping:
    """The text with stops. Raises ValueError where the text is not the one that `program` describes."""
    lines = source.splitlines()
    operators = [found for _, found in _origins(lines, program)]
    for number, (line, _) in enumerate(_origins(lines, program)):
        indent = lines[line][: len(lines[line]) - len(lines[line].lstrip())]
        lines[line] = f"{indent}tl_emu_stop({number});  {lines[line].strip()}"
    slots: list[RegisterTile] = []
    slots_of: dict[str, list[int]] = {symbol: [] for symbol in program.kernels}
    rest = iter(range(len(lines)))
    for symbol, kernel in program.kernels.items():
        for declaration, tile in kernel.arrays:
            at = next((n for n in rest if lines[n].strip() == declaration), None)
            if at is None:
                raise ValueError(f"the text has no declaration {declaration!r}, which {symbol} should have")
            if tile is not None:
                name = _NAME.search(declaration)
                assert name is not None
                lines[at] += f" tl_emu_shown_t tl_emu_shown_{len(slots)}({len(slots)}, &{name[1]});"
                slots_of[symbol].append(len(slots))
                slots.append(tile)
    return Stopping("\n".join(lines) + "\n", operators, slots, slots_of)


def _origins(lines: Sequence[str], program: Program) -> list[tuple[int, Operator]]:
    """(index of the line, operator) of each stop: at the origin comments. What the compiler makes of one operator is
    one stop, though its parts have comments of their own: the copies around a T.cumsum belong to it."""
    statements: list[list[tuple[int, Operator]]] = []
    indent = ""
    for number, line in enumerate(lines):
        origin, place = _ORIGIN.match(line), program.place(number + 1)
        if origin and place:
            part = (number, Operator(_operator_name(origin[2]), origin[2], *place))
            if indent == origin[1] and statements and statements[-1][-1][1][2:] == place:
                statements[-1].append(part)
            else:
                statements.append([part])
            indent = origin[1]
        elif line.strip() and not line.startswith(indent):
            indent = ""  # its block has ended
    found = []
    for parts in statements:
        own = [part for part in parts if part[1].text != "T.copy"]
        # Nothing but copies: those that run ahead, of several iterations.
        found += [(parts[0][0], own[0][1])] if own else parts
    return found


def _operator_name(text: str) -> str:
    """T.reduce_max -> tl.reduce; T.Parallel -> ""."""
    name = text.removeprefix("T.")
    if name == "Parallel":
        return ""
    for start, family in (("reduce_", "reduce"), ("cum", "scan"), ("atomic", "atomic")):
        name = family if name.startswith(start) else name
    return f"tl.{name}"


class Tiles(Mapping[str, Array]):
    """The block's tiles by the user's names, gathered when they are asked for. Copies: to change one changes nothing."""

    def __init__(self, gathered: Sequence[tuple[str, Callable[[], Array]]]) -> None:
        self._gather: dict[str, Callable[[], Array]] = {}
        for wanted, gather in gathered:
            name, count = wanted, 0
            while name in self._gather:
                count += 1
                name = f"{wanted}_{count}"
            self._gather[name] = gather

    def __getitem__(self, name: str) -> Array:
        return self._gather[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._gather)

    def __len__(self) -> int:
        return len(self._gather)


def shared_tile(tile: SharedTile, base: int) -> Array:
    """A tile of the shared memory at `base`."""
    positions = tile.positions()
    count = int(positions.max(initial=-1)) + 1
    return _elements(base + tile.offset, count, tile.dtype)[positions]


def register_tile(tile: RegisterTile, addresses: Sequence[int]) -> Array:
    """A tile gathered from the threads' arrays; (threads, *shape) where each thread has one of its own."""
    if tile.thread is None:
        count = int(np.prod(tile.shape, dtype=np.int64))
        return np.stack([_elements(a, count, tile.dtype).reshape(tile.shape) for a in addresses])
    thread, register = _places(tile)
    count = int(register.max(initial=-1)) + 1
    held = {int(t): _elements(addresses[int(t)], count, tile.dtype) for t in np.unique(thread)}
    table = np.stack([held[t] for t in sorted(held)])
    row = np.searchsorted(np.asarray(sorted(held)), thread)
    found: Array = table[row, register]
    return found


def owners(tile: RegisterTile, threads: int) -> list[int]:
    """The threads that hold a part of the tile."""
    return list(range(threads)) if tile.thread is None else [int(t) for t in np.unique(_places(tile)[0])]


def _places(tile: RegisterTile) -> tuple[Ints, Ints]:
    """Thread and register of each element, of its first copy."""
    first = np.zeros((), np.int64)
    thread = over_shape(tile.thread, tile.variables, tile.shape, rep=first)
    return thread, over_shape(tile.register, tile.variables, tile.shape, rep=first)


def global_array(buffer: Buffer, address: int, dtype: str) -> Array:
    """A parameter in its shape."""
    if not buffer.shape:
        return _elements(address, buffer.nbytes // buffer.itemsize, dtype)
    flat = _elements(address, buffer.nbytes // buffer.itemsize, dtype)
    steps = [s * flat.itemsize for s in buffer.strides]
    raw = flat.view(f"u{flat.itemsize}")  # numpy's as_strided knows some types of ml_dtypes only by their width
    return np.lib.stride_tricks.as_strided(raw, buffer.shape, steps).view(flat.dtype).copy()


def _elements(address: int, count: int, dtype: str) -> Array:
    """A copy of `count` elements of memory."""
    kind = numpy_dtype(dtype) or np.dtype(np.uint8)
    return np.frombuffer(ctypes.string_at(address, count * kind.itemsize), kind)
