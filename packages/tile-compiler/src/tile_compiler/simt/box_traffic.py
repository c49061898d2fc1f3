"""What boxes of a tensor cost: the part of each that lies inside, in bytes and in sectors of global memory.

A bulk copy reads or writes rows of a box, first dimension first. A sector that the end of one row shares with the
beginning of the next is moved once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tile_compiler.simt.memory_turns import SECTOR
from tile_compiler.simt.thread_values import Array

#: The functions that move a box, with the position of the tensor map among their arguments and of the first coordinate.
BOX_COPIES = {"tma_load": (1, 3), "tma_load_multicast": (1, 4), "tma_store": (0, 2), "tma_reduce": (0, 2)}
#: What else moves bytes of global memory without being an access of a thread.
BULK_COPIES = ("bulk_load", "bulk_load_multicast", "bulk_store", "bulk_reduce")


@dataclass(frozen=True)
class BoxedTensor:
    """A tensor map, fastest dimension first; `strides` in bytes, of dimensions 1, 2, ..."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    itemsize: int

    @property
    def box_bytes(self) -> int:
        return math.prod(self.box) * self.itemsize

    def costs(self, coordinates: Sequence[Array]) -> tuple[Array, Array]:
        """(bytes, sectors) inside the tensor of the box at each of the coordinates, which are arrays of one shape."""
        places = np.stack([np.ravel(c) for c in coordinates], 1)
        shape, box = np.array(self.shape), np.array(self.box)
        low, high = np.clip(-places, 0, box), np.clip(shape - places, 0, box)
        steps = np.array([self.itemsize, *self.strides])
        # Boxes that are cut in the same way and begin at the same place of a sector cost the same.
        first = ((places + low) * steps).sum(axis=1) % SECTOR
        kinds, which = np.unique(np.column_stack([low, high, first]), axis=0, return_inverse=True)
        found = np.array([self._one(*np.split(kind, [len(box), 2 * len(box)])) for kind in kinds])
        each = found[which.reshape(-1)].reshape(*np.shape(coordinates[0]), 2)
        return each[..., 0], each[..., 1]

    def _one(self, low: Array, high: Array, first: Array) -> tuple[int, int]:
        """(bytes, sectors) of a box whose elements from `low` to `high` are inside, and begin at byte `first`."""
        extents = np.maximum(high - low, 0)
        if not extents.all():
            return 0, 0
        starts = np.array([int(first[0])])
        for extent, stride in zip(extents[1:], self.strides):
            starts = (np.arange(extent)[:, None] * stride + starts).reshape(-1)
        row = int(extents[0]) * self.itemsize
        begin, end = starts // SECTOR, (starts + row - 1) // SECTOR
        shared = int((begin[1:] == end[:-1]).sum())
        return row * len(starts), int((end - begin + 1).sum()) - shared
