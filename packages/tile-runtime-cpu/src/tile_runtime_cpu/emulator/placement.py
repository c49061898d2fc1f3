"""Copies of a launch's buffers, far from each other, so that an access past one cannot land in the next.

Arrays of a host program lie side by side in its heap. A kernel that writes past one of them would hit another buffer
that it may touch, and nobody would notice; here it hits nothing. Buffers that share bytes stay together. The copies
are shared by the processes that run a launch's blocks.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

#: Nothing lies within this distance of a buffer; the runtime attributes a stray access to a buffer that near.
GAP = 16 << 20
#: Kept of each address, so that a misaligned argument stays misaligned.
_ALIGNMENT = 4096


@dataclass
class _Range:
    low: int
    high: int
    shift: int = 0


class Placement:
    """Moves ranges of memory away and, as a context manager's end, what may have been written back."""

    def __init__(self, buffers: Sequence[tuple[int, int, bool]]) -> None:
        """`buffers`: address, bytes, writable."""
        self._writable = [(address, size) for address, size, writable in buffers if writable]
        self._ranges: list[_Range] = []
        for address, size, _ in sorted(buffers):
            if self._ranges and address < self._ranges[-1].high:
                self._ranges[-1].high = max(self._ranges[-1].high, address + size)
            elif size:
                self._ranges.append(_Range(address, address + size))
        total = GAP + sum(r.high - r.low + GAP + 2 * _ALIGNMENT for r in self._ranges)
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)
        self._memory = mmap.mmap(-1, total, flags=flags)

    def __enter__(self) -> Placement:
        self._anchor = ctypes.c_char.from_buffer(self._memory)
        cursor = ctypes.addressof(self._anchor) + GAP
        for r in self._ranges:
            cursor = -(-cursor // _ALIGNMENT) * _ALIGNMENT + r.low % _ALIGNMENT
            r.shift = cursor - r.low
            cursor += r.high - r.low + GAP
        self.copy_in()
        return self

    def copy_in(self) -> None:
        """Fill the copies with what the buffers hold."""
        for r in self._ranges:
            ctypes.memmove(r.low + r.shift, r.low, r.high - r.low)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for address, size in self._writable:
            if size:
                ctypes.memmove(address, self.moved(address), size)
        del self._anchor
        self._memory.close()

    def moved(self, address: int) -> int:
        """Where an address of a buffer (or its end) has gone; others stay."""
        for r in self._ranges:
            if r.low <= address < r.high:
                return address + r.shift
        for r in self._ranges:
            if address == r.high:
                return address + r.shift
        return address
