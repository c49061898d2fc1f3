"""What the compiler tells of a generated text (`debug.json`): the user's lines, and where the user's tiles are."""

from __future__ import annotations

import bisect
import json
import linecache
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tile_runtime.dtypes import DTYPES

from .index_map import Ints, over_shape


class Place(NamedTuple):
    """A line of the user's program."""

    file: str
    line: int

    @property
    def text(self) -> str:
        """The line, or "" where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class SharedTile:
    """A tile in shared memory: `element` maps its indices to a position behind `offset` bytes.

    `line` of the text declares it, with all its versions of `bytes` in all; 0 where nothing in the text uses it.
    """

    name: str
    dtype: str
    shape: list[int]
    variables: list[str]
    offset: int
    element: Any
    line: int = 0
    bytes: int = 0

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].itemsize

    def positions(self) -> Ints:
        """The position in memory of each element."""
        return over_shape(self.element, self.variables, self.shape)

    def holds(self, offset: int) -> bool:
        return 0 <= offset - self.offset < self.itemsize * (int(self.positions().max(initial=-1)) + 1)

    def indices(self, offset: int, size: int) -> list[tuple[int, ...]]:
        """The elements that lie in `size` bytes from `offset` on, in the order of memory."""
        positions = self.positions()
        first, last = (offset - self.offset) // self.itemsize, (offset + size - 1 - self.offset) // self.itemsize
        inside = np.argwhere((positions >= first) & (positions <= last))
        order = np.argsort(positions[tuple(inside.T)], kind="stable")
        return [tuple(int(i) for i in inside[n]) for n in order]


@dataclass(frozen=True)
class RegisterTile:
    """A tile in registers: `thread` and `register` map its indices to the place of the (first) copy of an element.

    Where `thread` is None each thread has all of it.
    """

    name: str
    dtype: str
    shape: list[int]
    variables: list[str]
    thread: Any = None
    register: Any = None


class KernelTiles(NamedTuple):
    """`arrays`: each declaration of the text that may hold a tile, in order; None for the compiler's own."""

    rank: int  # of the grid
    shared: list[SharedTile]
    arrays: list[tuple[str, RegisterTile | None]]


class Program:
    """The member `debug.json`."""

    def __init__(self, data: bytes) -> None:
        read = json.loads(data)
        self._files: list[str] = read["files"]
        self._lines: list[list[int]] = read["lines"]
        self._starts = [entry[0] for entry in self._lines]
        self.kernels = {
            symbol: KernelTiles(
                kernel["rank"],
                [SharedTile(**tile) for tile in kernel["shared"]],
                [(text, None if tile is None else RegisterTile(**tile)) for text, tile in kernel["arrays"]],
            )
            for symbol, kernel in read["kernels"].items()
        }

    def place(self, line: int | None) -> Place | None:
        """The user's statement that a line of the device text comes from."""
        number = bisect.bisect_right(self._starts, line or 0) - 1
        if line is None or number < 0:
            return None
        _, file, at = self._lines[number]
        return None if file < 0 else Place(self._files[file], at)

    def shared(self, symbol: str, offset: int) -> list[SharedTile]:
        """The tiles of a kernel that lie at an offset of its shared memory; several where they share it."""
        return [tile for tile in self.kernels[symbol].shared if tile.holds(offset)]

    def windows(self, symbol: str) -> list[SharedTile]:
        """The tiles that lines of the text declare, each of which may only be accessed through its own pointer."""
        return [tile for tile in self.kernels[symbol].shared if tile.line]


def global_indices(offset: int, size: int, itemsize: int, shape: Sequence[int], strides: Sequence[int]) -> str:
    """The elements of a tensor in `size` bytes from `offset` on, as `[3, 8:16]`; leading indices may be out of range."""
    count = max(1, -(-size // itemsize))
    rest, index = offset // itemsize, [0] * len(shape)
    for axis in sorted(range(len(shape)), key=lambda d: -strides[d]):
        index[axis], rest = (rest // strides[axis], rest % strides[axis]) if strides[axis] else (0, rest)
    last = [str(i) for i in index]
    if last and count > 1 and strides[-1] == 1:
        last[-1] = f"{index[-1]}:{index[-1] + count}"
    return f"[{', '.join(last)}]"


def shown(indices: Sequence[tuple[int, ...]]) -> str:
    """[(3, 8), (3, 9)] -> "[3, 8:10]"; the first and a count where they are not neighbours along the last axis."""
    if not indices:
        return ""
    first, last = indices[0], indices[-1]
    run = all(i[:-1] == first[:-1] and i[-1] == first[-1] + n for n, i in enumerate(indices))
    if len(indices) > 1 and run:
        return f"[{', '.join([*map(str, first[:-1]), f'{first[-1]}:{last[-1] + 1}'])}]"
    more = f" and {len(indices) - 1} more elements" if len(indices) > 1 else ""
    return f"[{', '.join(map(str, first))}]{more}"


def row_major(shape: Sequence[int]) -> list[int]:
    """The strides of a contiguous array, in elements."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
