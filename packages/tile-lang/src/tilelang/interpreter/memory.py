"""Buffers of a running kernel: bytes, a shadow that knows which of them were written, and typed views.

All arrays have a leading axis of *copies*: 1 for memory that everyone sees, one per lane for private memory that
came to differ between lanes. Indices given here are inside the buffer; what happens outside is the caller's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilelang.interpreter import numerics
from tilelang.interpreter.numerics import Values
from tilelang.ir.dtypes import DType

_serial = itertools.count()


class Storage:
    """The memory of one parameter or allocation, seen through one or more `Buffer`s.

    `data` is bytes (copies, size); a parameter that is a strided numpy view keeps its own array in `strided`.
    `shadow`, for on-chip memory, has the same form as `data`, with every bit set that was written.
    """

    def __init__(self, data: Values | None, *, strided: Values | None = None, tracked: bool = False) -> None:
        self.data, self.strided = data, strided
        self.shadow = np.zeros_like(data) if tracked and data is not None else None
        self.unit_bits = 1 << 20  # the smallest element that a buffer over it has; races are recorded per unit
        self.serial = next(_serial)

    @classmethod
    def allocate(cls, size: int, *, tracked: bool, fill: int) -> Storage:
        """Fresh memory of `size` bytes, each `fill`: 0xFF makes floats NaN until someone writes them."""
        return cls(np.full((1, size), fill, np.uint8), tracked=tracked)

    @classmethod
    def over(cls, array: Values) -> Storage:
        """The caller's array itself."""
        if array.flags.c_contiguous:
            return cls(array.reshape(-1).view(np.uint8)[None])
        return cls(None, strided=array)

    def split(self, copies: int) -> None:
        """Give each lane its own copy."""
        if self.data is not None and self.data.shape[0] != copies:
            self.data = np.repeat(self.data, copies, axis=0)
            if self.shadow is not None:
                self.shadow = np.repeat(self.shadow, copies, axis=0)

    @property
    def copies(self) -> int:
        return 1 if self.data is None else int(self.data.shape[0])


class Buffer:
    """A shape and an element type over a `Storage`, from byte `offset` on.

    `owner` is the group of lanes that a private buffer belongs to, one copy each; None for other scopes.
    """

    def __init__(
        self,
        name: str,
        dtype: DType,
        shape: Sequence[int],
        scope: str,
        storage: Storage,
        *,
        owner: Any = None,
        offset: int = 0,
    ) -> None:
        self.name, self.dtype, self.shape, self.scope = name, dtype, tuple(shape), scope
        self.storage, self.owner, self.offset = storage, owner, offset
        self.packed = dtype.bits < 8
        self._size, self._stored_shape = Buffer.size_of(dtype, shape), Buffer.stored_shape(dtype, self.shape)
        if self.packed and dtype.lanes > 1:
            raise ValueError(f"{name}: vectors of a type under a byte ({dtype}) are not supported")
        storage.unit_bits = min(storage.unit_bits, dtype.bits * dtype.lanes)

    @staticmethod
    def size_of(dtype: DType, shape: Sequence[int]) -> int:
        """Bytes of storage."""
        return math.prod(Buffer.stored_shape(dtype, shape)) * max(1, dtype.bits // 8)

    @staticmethod
    def stored_shape(dtype: DType, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the array that holds the elements: packed along the last axis, or with an axis of lanes."""
        if dtype.bits < 8:
            return (*shape[:-1], -(-shape[-1] // dtype.per_byte))
        return (*shape, dtype.lanes) if dtype.lanes > 1 else tuple(shape)

    def array(self) -> Values:
        """The live elements with the leading axis of copies; bytes for packed types."""
        if self.storage.strided is not None:
            return self.storage.strided[None]
        return self._elements(self.storage.data, np.dtype(np.uint8) if self.packed else self.dtype.as_numpy())

    def _shadow(self) -> Values:
        return self._elements(self.storage.shadow, numerics.code_dtype(self.dtype))

    def _elements(self, stored: Values | None, dtype: np.dtype[Any]) -> Values:
        assert stored is not None
        typed = stored[:, self.offset : self.offset + self._size].view(dtype)
        return typed.reshape(stored.shape[0], *self._stored_shape)

    # -- single elements, one per lane ------------------------------------------------------------------------

    def gather(self, copies: Values | int, indices: Sequence[Values]) -> Values:
        """The elements at `indices`, one array per dimension."""
        if not self.packed:
            place = (copies, *indices)
            return self.array()[place]
        codes = self._packed_codes(self.array(), copies, indices)
        return numerics.from_codes(codes, self.dtype)

    def scatter(self, copies: Values | int, indices: Sequence[Values], values: Values) -> None:
        """Write elements of the buffer's dtype."""
        place = (copies, *indices)
        if self.packed:
            self._scatter_codes(self.array(), copies, indices, numerics.to_codes(values, self.dtype))
        else:
            self.array()[place] = values
        if self.storage.shadow is not None:
            if self.packed:
                full = np.full(len(indices[0]), (1 << self.dtype.bits) - 1, np.uint8)
                self._scatter_codes(self._shadow(), copies, indices, full)
            else:
                self._shadow()[place] = numerics.all_ones(self.dtype)

    def written(self, copies: Values | int, indices: Sequence[Values]) -> Values | None:
        """For each element whether someone wrote it; None when this memory is not watched."""
        if self.storage.shadow is None:
            return None
        if self.packed:
            return self._packed_codes(self._shadow(), copies, indices) == (1 << self.dtype.bits) - 1
        place = (copies, *indices)
        marks = self._shadow()[place] == numerics.all_ones(self.dtype)
        return marks.all(axis=-1) if self.dtype.lanes > 1 else marks

    def _packed_codes(self, stored: Values, copies: Values | int, indices: Sequence[Values]) -> Values:
        per, bits = self.dtype.per_byte, self.dtype.bits
        last = indices[-1]
        shift = (last % per * bits).astype(np.uint8)
        place = (copies, *indices[:-1], last // per)
        return (stored[place] >> shift) & np.uint8((1 << bits) - 1)

    def _scatter_codes(self, stored: Values, copies: Values | int, indices: Sequence[Values], codes: Values) -> None:
        per, bits = self.dtype.per_byte, self.dtype.bits
        last = indices[-1]
        for position in range(per):  # elements at one position lie in different bytes, so one assignment does them
            here = last % per == position
            own = copies[here] if isinstance(copies, np.ndarray) else copies
            place = (own, *[i[here] for i in indices[:-1]], last[here] // per)
            keep = np.uint8(0xFF ^ (((1 << bits) - 1) << (position * bits)))
            stored[place] = (stored[place] & keep) | (codes[here] << np.uint8(position * bits))

    def places(self, indices: Sequence[Values]) -> Values:
        """For each element the numbers of the storage units that it covers: (elements, units per element)."""
        flat = np.zeros(len(indices[0]) if indices else 1, np.int64)
        for index, extent in zip(indices, self.shape, strict=True):
            flat = flat * extent + index
        width = self.dtype.bits * self.dtype.lanes // self.storage.unit_bits
        start = self.offset * 8 // self.storage.unit_bits + flat * width
        return start[:, None] + np.arange(width)

    # -- boxes ------------------------------------------------------------------------------------------------

    def read_box(self, starts: Sequence[int], sizes: Sequence[int]) -> Values:
        """A copy of a box of elements, with the axis of copies."""
        if self.packed:
            return numerics.from_codes(self._unpacked(self.array(), starts, sizes), self.dtype)
        return self.array()[_slices(starts, sizes)].copy()

    def write_box(self, starts: Sequence[int], tile: Values) -> None:
        """Write a tile of the buffer's dtype (without the axis of copies) into every copy."""
        sizes = tile.shape[: len(self.shape)]
        if self.packed:
            self._write_packed(self.array(), starts, numerics.to_codes(tile, self.dtype))
        else:
            self.array()[_slices(starts, sizes)] = tile
        if self.storage.shadow is not None:
            if self.packed:
                self._write_packed(self._shadow(), starts, np.full(sizes, (1 << self.dtype.bits) - 1, np.uint8))
            else:
                self._shadow()[_slices(starts, sizes)] = numerics.all_ones(self.dtype)

    def box_written(self, starts: Sequence[int], sizes: Sequence[int]) -> Values | None:
        """For each element of a box whether every copy of it was written; None when not watched."""
        if self.storage.shadow is None:
            return None
        if self.packed:
            marks = self._unpacked(self._shadow(), starts, sizes) == (1 << self.dtype.bits) - 1
        else:
            marks = self._shadow()[_slices(starts, sizes)] == numerics.all_ones(self.dtype)
            marks = marks.all(axis=-1) if self.dtype.lanes > 1 else marks
        return np.asarray(marks.all(axis=0))

    def _byte_box(self, starts: Sequence[int], sizes: Sequence[int]) -> tuple[tuple[slice, ...], slice]:
        """The slices of the bytes around a packed box, and where its last axis lies in their elements."""
        per = self.dtype.per_byte
        first, stop = starts[-1] // per, -(-(starts[-1] + sizes[-1]) // per)
        outer = _slices(starts[:-1], sizes[:-1])
        return (*outer, slice(first, stop)), slice(starts[-1] - first * per, starts[-1] - first * per + sizes[-1])

    def _unpacked(self, stored: Values, starts: Sequence[int], sizes: Sequence[int]) -> Values:
        around, inside = self._byte_box(starts, sizes)
        return numerics.unpack(stored[around], self.dtype.bits)[..., inside]

    def _write_packed(self, stored: Values, starts: Sequence[int], codes: Values) -> None:
        around, inside = self._byte_box(starts, codes.shape)
        elements = numerics.unpack(stored[around], self.dtype.bits)
        elements[..., inside] = codes
        stored[around] = numerics.pack(elements, self.dtype.bits)


def _slices(starts: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    return (slice(None), *(slice(a, a + n) for a, n in zip(starts, sizes, strict=True)))
