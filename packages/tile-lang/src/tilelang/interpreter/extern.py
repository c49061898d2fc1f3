"""Meanings in Python for `T.call_extern`, and the pointers that they get."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelang.interpreter import numerics
from tilelang.interpreter.access import Memory
from tilelang.interpreter.memory import Buffer
from tilelang.interpreter.numerics import Values

# Name of the external function -> its meaning. It is called once per active lane (once per block when it has an
# attribute `per_block` that is true), with numpy scalars, strings and `Pointer`s, and returns a scalar or None.
externs: dict[str, Callable[..., Any]] = {}


@dataclass(frozen=True)
class Pointer:
    """An address in a buffer, as a lane gives it to an external function.

    `p.load(i)` and `p.store(value, i)` count elements from the address and are checked as accesses of the kernel
    are; `p.array[p.offset + i]` is the live memory itself, flat, and unchecked. Packed types have no `array`.
    """

    memory: Memory
    buffer: Buffer
    offset: int
    copy: int = 0

    def load(self, i: int = 0) -> Any:
        """The element `i` places on; 0 outside the buffer."""
        index = self._index(i)
        if index is None:
            return np.zeros((), self.buffer.dtype.as_numpy())[()]
        written = self.buffer.written(self.copy, index)
        if written is not None and not written.all():
            raise self.memory.error(
                f"an external function reads {self.buffer.name}, element {self.offset + i}: unwritten"
            )
        return self.buffer.gather(self.copy, index)[0]

    def store(self, value: Any, i: int = 0) -> None:
        """Write the element `i` places on; dropped outside the buffer."""
        index = self._index(i)
        if index is not None:
            self.buffer.scatter(self.copy, index, numerics.convert(np.asarray([value]), self.buffer.dtype))

    @property
    def array(self) -> Values:
        """The whole buffer, flat; all of it counts as written from here on."""
        if self.buffer.packed or self.buffer.storage.strided is not None:
            raise self.memory.error(f"{self.buffer.name} is packed or strided: use Pointer.load and Pointer.store")
        if self.buffer.storage.shadow is not None:
            self.buffer.storage.shadow[self.copy] = 0xFF
        return self.buffer.array()[self.copy].reshape(-1)

    def _index(self, i: int) -> list[Values] | None:
        place = self.offset + int(i)
        if not 0 <= place < int(np.prod(self.buffer.shape)):
            return None
        return [np.asarray([x]) for x in np.unravel_index(place, self.buffer.shape)]
