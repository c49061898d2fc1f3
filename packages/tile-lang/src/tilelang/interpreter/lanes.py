"""Groups of lanes in lockstep (the threads of a block, the iterations of a parallel loop), and their races."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilelang.interpreter.memory import Buffer
from tilelang.interpreter.numerics import Values


class Lanes:
    """Lanes that execute the same statements under a mask.

    A value is an array with a leading axis of length `count` (one element per lane), or of length 1 when it is
    the same for all lanes; nothing is widened before it has to differ.
    """

    def __init__(self, kind: str, extents: Sequence[int], *, x_first: bool = False) -> None:
        self.kind, self.extents, self.x_first = kind, tuple(extents), x_first
        self.count = math.prod(self.extents)
        self.mask: Values = np.ones(self.count, bool)

    def coordinates(self) -> list[Values]:
        """Each lane's coordinate along each extent; x (thread axes) or the innermost loop varies fastest."""
        order = tuple(reversed(self.extents)) if self.x_first else self.extents
        grids = np.unravel_index(np.arange(self.count), order) if order else ()
        return [np.asarray(g) for g in (reversed(grids) if self.x_first else grids)]

    def name(self, lane: int) -> str:
        """A lane as the user knows it: `thread 3`, `iteration (0, 4)`."""
        place = [int(c[lane]) for c in self.coordinates()]
        return f"{self.kind} {place[0] if len(place) == 1 else tuple(place)}"


@dataclass(frozen=True)
class Race:
    """Two lanes that meet at one element: `element` and `lane` index the access that was being made."""

    element: int
    lane: int
    other: int
    what: str


def conflicting_writes(places: Values, lanes: Values, codes: Values) -> Race | None:
    """Two lanes that write one place with different bits in one statement."""
    order = np.argsort(places, kind="stable")
    sorted_places, sorted_codes = places[order], codes[order]
    same_place = sorted_places[1:] == sorted_places[:-1]
    different = sorted_codes[1:] != sorted_codes[:-1]
    different = different.any(axis=-1) if different.ndim > 1 else different
    found = np.flatnonzero(same_place & different)
    if not len(found):
        return None
    first, second = order[found[0]], order[found[0] + 1]
    return Race(int(second), int(lanes[second]), int(lanes[first]), "writes, with another value than")


class _Visits:
    """For each place of a storage up to two different lanes that visited it (numbered from 1; 0: nobody)."""

    def __init__(self, size: int) -> None:
        self.first = np.zeros(size, np.int32)  # untouched pages of such an array cost nothing
        self.second = np.zeros(size, np.int32)

    def add(self, places: Values, lanes: Values) -> None:
        fresh = self.first[places] == 0
        self.first[places[fresh]] = lanes[fresh] + 1
        foreign = self.first[places] != lanes + 1
        self.second[places[foreign]] = lanes[foreign] + 1

    def by_others(self, places: Values, lanes: Values) -> Values:
        """For each access one other lane that visited the place, numbered from 1, or 0."""
        first, second = self.first[places], self.second[places]
        return np.where(first == lanes + 1, second, first)


class RaceTracker:
    """Who read and wrote each element of the buffers that one parallel loop stores to."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self._reads: dict[int, _Visits] = {}
        self._writes: dict[int, _Visits] = {}
        # Elements that several lanes wrote (the same value): keys place * lanes + lane of all who did.
        self._shared: dict[int, Values] = {}

    def _visits(self, buffer: Buffer) -> tuple[_Visits, _Visits]:
        key, storage = buffer.storage.serial, buffer.storage
        if key not in self._reads:
            stored: Any = storage.strided if storage.strided is not None else storage.data
            size = stored.size * stored.itemsize * 8 // storage.unit_bits
            self._reads[key], self._writes[key] = _Visits(size), _Visits(size)
            self._shared[key] = np.empty(0, np.int64)
        return self._reads[key], self._writes[key]

    def read(self, buffer: Buffer, indices: Sequence[Values], lanes: Values) -> Race | None:
        """Record reads; a race when another lane wrote the element and this one did not."""
        places, element, lanes = _flatten(buffer, indices, lanes)
        reads, writes = self._visits(buffer)
        other = writes.by_others(places, lanes)
        if (other > 0).any():
            keys = places * self.lanes.count + lanes
            alone = writes.first[places] == lanes + 1  # this lane was the first to write it
            bad = np.flatnonzero((other > 0) & ~alone & ~np.isin(keys, self._shared[buffer.storage.serial]))
            if len(bad):
                i = bad[0]
                return Race(int(element[i]), int(lanes[i]), int(other[i]) - 1, "reads what was written by")
        reads.add(places, lanes)
        return None

    def write(self, buffer: Buffer, indices: Sequence[Values], lanes: Values, changed: Values) -> Race | None:
        """Record writes (`changed`: the value differs from the present one); a race with another lane's access."""
        places, element, lanes = _flatten(buffer, indices, lanes)
        reads, writes = self._visits(buffer)
        for visits, bad, what in (
            (reads, np.ones(len(places), bool), "writes what was read by"),
            (writes, changed[element], "writes, with another value than"),
        ):
            other = np.where(bad, visits.by_others(places, lanes), 0)
            found = np.flatnonzero(other)
            if len(found):
                i = found[0]
                return Race(int(element[i]), int(lanes[i]), int(other[i]) - 1, what)
        first_before = writes.first[places]
        writes.add(places, lanes)
        shared = writes.second[places] > 0
        if shared.any():
            key = buffer.storage.serial
            earlier = shared & (first_before > 0)
            self._shared[key] = np.unique(
                np.concatenate(
                    [
                        self._shared[key],
                        places[shared] * self.lanes.count + lanes[shared],
                        places[earlier] * self.lanes.count + first_before[earlier] - 1,
                    ]
                )
            )
        return None


def _flatten(buffer: Buffer, indices: Sequence[Values], lanes: Values) -> tuple[Values, Values, Values]:
    """Units touched, and for each the number of the element and the lane that touch it."""
    places = buffer.places(indices)
    element = np.repeat(np.arange(places.shape[0]), places.shape[1])
    return places.reshape(-1), element, lanes[element]
