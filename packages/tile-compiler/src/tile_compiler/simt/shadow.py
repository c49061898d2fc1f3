"""What the checker remembers of the memory that threads share: who touched each place since the last barrier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tile_compiler.simt.thread_values import Array

if TYPE_CHECKING:
    from tile_compiler.simt.checker.engines import Engines

NOBODY, MANY = -1, -2  # beside the number of a thread

KINDS = ("read", "write", "atomic")
AGAINST = {
    "read": ("write", "atomic"),
    "atomic": ("write", "read"),
    "write": ("write", "read", "atomic"),
    "async": ("write", "read", "atomic"),
}


@dataclass(frozen=True)
class Flight:
    """A copy that was started and not yet waited for."""

    place: Array
    thread: Array
    site: int


@dataclass(frozen=True)
class Meeting:
    """Two threads at one place: `before` is the earlier statement, `kind` what it did ("async": a copy in flight)."""

    place: int
    kind: str
    before: int
    partner: int
    thread: int


class Shadow:
    """The state of a walk at one point: for each place and kind of access the thread (or MANY) since the last barrier.

    `groups` are the closed groups of `cp.async`, oldest first; `open` the copies after the last commit; `loads` each wave's
    loads to shared memory, oldest first. `engines` is what asynchronous work adds, where there is any. Two states of equal
    `key` cannot be told apart by anything that follows.
    """

    def __init__(self, size: int, engines: Engines | None = None) -> None:
        self.engines = engines
        self.thread = {kind: np.full(size, NOBODY, np.int16) for kind in KINDS}
        self.site = {kind: np.full(size, -1, np.int32) for kind in KINDS}
        self.flying = np.full(size, -1, np.int32)  # the statement that started an unfinished copy
        self.groups: list[list[Flight]] = []
        self.open: list[Flight] = []
        self.loads: dict[int, list[list[Flight]]] = {}

    @property
    def size(self) -> int:
        return len(self.flying)

    def grow(self, size: int) -> None:
        """Room for `size` places."""
        more = size - self.size
        if more <= 0:
            return
        for table in (self.thread, self.site):
            for kind in KINDS:
                table[kind] = np.concatenate([table[kind], np.full(more, -1, table[kind].dtype)])
        self.flying = np.concatenate([self.flying, np.full(more, -1, np.int32)])
        if self.engines is not None:
            self.engines.footprints.grow(size)

    def barrier(self, places: slice = slice(None)) -> None:
        """The threads that touch these places meet."""
        for kind in KINDS:
            self.thread[kind][places] = NOBODY

    def commit(self) -> None:
        self.groups.append(self.open)
        self.open = []

    def wait(self, pending: int) -> list[Flight]:
        """Until at most `pending` groups are unfinished; what arrives (given back) counts as written at the wait."""
        done: list[Flight] = []
        while len(self.groups) > pending:
            done += self.groups.pop(0)
        return self._arrived(done)

    def wait_loads(self, pending: int) -> list[Flight]:
        """As `wait`: until at most `pending` of each wave's newest loads are unfinished."""
        done: list[Flight] = []
        for queue in self.loads.values():
            while len(queue) > pending:
                done += queue.pop(0)
        return self._arrived(done)

    def _arrived(self, done: list[Flight]) -> list[Flight]:
        for flight in done:
            self.flying[flight.place] = -1
            self.record("write", flight.place, flight.thread, flight.site)
        return done

    def meets(self, kind: str, place: Array, thread: Array, site: int, same: bool) -> Meeting | None:
        """The first conflict of an access with what came before. `same`: all threads write one value."""
        flies = self.flying[place] >= 0
        if flies.any():
            bad = int(np.argmax(flies))
            return Meeting(int(place[bad]), "async", int(self.flying[place[bad]]), NOBODY, int(thread[bad]))
        for other in AGAINST[kind]:
            there = self.thread[other][place]
            met = (there != NOBODY) & (there != thread)
            if self.engines is not None and met.any():  # another order than that of the block's barriers may hold
                met &= ~self.engines.footprints.known(other, place, thread, self.engines.knowledge)
            if same and other == "write":
                met &= self.site["write"][place] != site
            if met.any():
                bad = int(np.argmax(met))
                at = int(place[bad])
                return Meeting(at, other, int(self.site[other][at]), int(there[bad]), int(thread[bad]))
        return None

    def record(self, kind: str, place: Array, thread: Array, site: int) -> None:
        held = self.thread[kind]
        others = (held[place] != NOBODY) & (held[place] != thread)
        new = np.where(others, MANY, thread)
        held[place] = new
        held[place[held[place] != new]] = MANY  # a place that several threads touch in this statement
        self.site[kind][place] = site

    def start(self, place: Array, thread: Array, site: int) -> None:
        self.flying[place] = site
        self.open.append(Flight(place, thread, site))

    def start_loads(self, place: Array, thread: Array, site: int, wave: int) -> None:
        """One load of each wave that has active threads."""
        self.flying[place] = site
        for number in np.unique(thread // wave):
            mine = thread // wave == number
            self.loads.setdefault(int(number), []).append([Flight(place[mine], thread[mine], site)])

    def copy(self, table: Callable[[Any], Any] = np.copy) -> Shadow:
        """`table` copies what has a number for each place, or a row for each thread; `Runs.of` and `Runs.whole` make it
        small and large again."""
        new = Shadow(0, None if self.engines is None else self.engines.copy(table))
        new.thread = {k: table(v) for k, v in self.thread.items()}
        new.site = {k: table(v) for k, v in self.site.items()}
        new.flying = table(self.flying)
        new.groups, new.open = [list(g) for g in self.groups], list(self.open)
        new.loads = {wave: [list(g) for g in queue] for wave, queue in self.loads.items()}
        return new

    def merge(self, other: Shadow) -> None:
        """What may have happened if either state may be the present one."""
        size = max(self.size, other.size)
        self.grow(size)
        other.grow(size)
        for kind in KINDS:
            mine, yours = self.thread[kind], other.thread[kind]
            new = np.where(mine == NOBODY, yours, np.where((yours == NOBODY) | (yours == mine), mine, MANY))
            self.site[kind] = np.where(mine == NOBODY, other.site[kind], self.site[kind])
            self.thread[kind] = new.astype(np.int16)
        self.flying = np.maximum(self.flying, other.flying)
        # A group counts as young as it is in either state: waits finish the oldest first.
        self.groups = _aligned(self.groups, other.groups)
        waves = self.loads.keys() | other.loads.keys()
        self.loads = {w: _aligned(self.loads.get(w, []), other.loads.get(w, [])) for w in sorted(waves)}
        self.open = _union(self.open, other.open)
        if self.engines is not None and other.engines is not None:
            self.engines.merge(other.engines)

    def key(self) -> int:
        """A number that is equal for equal states (and, as a hash of 64 bits, for no other ones in practice)."""
        parts = [self.thread[kind].tobytes() for kind in KINDS]
        oldest = next((n for n, g in enumerate(self.groups) if g), len(self.groups))
        waves = [g for wave in sorted(self.loads) for g in ([], *self.loads[wave])]
        flights = [*self.groups[oldest:], self.open, *waves]
        pending = tuple(tuple((f.site, f.place.tobytes()) for f in g) for g in flights)
        engines = 0 if self.engines is None else self.engines.key()
        return hash((*parts, self.flying.tobytes(), pending, engines))


def _aligned(a: list[list[Flight]], b: list[list[Flight]]) -> list[list[Flight]]:
    """Two queues as one, the newest of both together."""
    count = max(len(a), len(b))
    padded = [[*([[]] * (count - len(queue))), *queue] for queue in (a, b)]
    return [_union(x, y) for x, y in zip(*padded)]


def _union(a: list[Flight], b: list[Flight]) -> list[Flight]:
    return [*a, *(f for f in b if not any(f is g for g in a))]
