"""What each thread of a block knows that the others have done: a clock for every pair."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tile_compiler.simt.shadow import MANY
from tile_compiler.simt.thread_values import Array

WARP = 32
ALWAYS = np.iinfo(np.int32).max
Clock = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Agents:
    """Who touches memory: `lanes` threads, then two engines of each warp, then the copies of each mbarrier.

    `consumers`, numbers of lanes, are threads of the kernel; others are producers, which get warps of their own. A
    warp's matrix products read on behalf of its first engine, the bulk stores of its threads of the second. Copies that
    an mbarrier counts have an agent of their own: whoever has waited at the barrier knows of them, nobody else does.
    """

    consumers: Array
    lanes: int
    barriers: int

    @property
    def warps(self) -> int:
        return -(-self.lanes // WARP)

    @property
    def count(self) -> int:
        return self.lanes + 2 * self.warps + self.barriers

    def products(self, warp: Any) -> Any:
        return self.lanes + warp

    def stores(self, warp: Any) -> Any:
        return self.lanes + self.warps + warp

    def copies(self, barrier: int) -> int:
        return self.lanes + 2 * self.warps + barrier

    def groups(self, kind: str) -> list[Any]:
        """The agents that a set of those who touch memory in this way is made of: indices of their clocks, group by
        group. Threads form groups by warps, as a set has 64 bits."""
        if kind == "fetch":
            return [[self.products(w)] for w in range(self.warps)] + [[self.stores(w)] for w in range(self.warps)]
        if kind == "fill":
            return [range(self.copies(b), self.copies(self.barriers), 64) for b in range(min(self.barriers, 64))]
        return [range(w * WARP, min(self.lanes, (w + 1) * WARP)) for w in range(self.warps)]

    def slowest(self, kind: str, rows: Clock) -> Clock:
        """Of rows of clocks the slowest agent of each group, which are neighbours but for copies of many barriers."""
        first, last, size = 0, self.lanes, WARP
        if kind == "fetch":
            first, last, size = self.lanes, self.copies(0), 1
        elif kind == "fill":
            if self.barriers > 64:
                return np.stack([rows[:, list(g)].min(axis=1) for g in self.groups(kind)], axis=1)
            first, last, size = self.copies(0), self.copies(self.barriers), 1
        held = rows[:, first:last]
        return held if size == 1 else np.minimum.reduceat(held, range(0, last, size), axis=1)


@dataclass
class Knowledge:
    """`known[t, a]`: thread t knows everything that agent a had done by this time.

    Times count the accesses and synchronizations of a walk. A thread knows of itself always, unless what is meant is what
    it knew at some moment (`now` False).

    `came[t, a]`: what thread t has waited for began after thread a had come so far. That says of a's waits that they are
    over, and nothing of its accesses: a bulk copy that another block starts hands over its bytes, not its thread's writes.
    None for one block, whose producer's arrivals say as much.
    """

    agents: Agents
    known: Clock
    came: Clock | None = None
    now: bool = True
    _made: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def none(cls, agents: Agents, now: bool = True, together: bool = False) -> Knowledge:
        """`together`: of the threads of several blocks."""
        came = np.zeros((agents.lanes, agents.lanes), np.int32) if together else None
        return cls(agents, np.zeros((agents.lanes, agents.count), np.int32), came, now)

    def copy(self, table: Callable[[Any], Any] = np.copy) -> Knowledge:
        """`table`: see `Shadow.copy`."""
        return Knowledge(self.agents, table(self.known), None if self.came is None else table(self.came), self.now)

    def changed(self) -> None:
        self._made = {}

    def merge(self, other: Knowledge) -> None:
        self.known = np.minimum(self.known, other.known)
        if self.came is not None and other.came is not None:
            self.came = np.minimum(self.came, other.came)
        self.changed()

    # -- synchronization ----------------------------------------------------------------------------------------

    def join(self, threads: Array, now: int) -> None:
        """Threads meet: each knows what any of them knew and did."""
        together = self.released(threads, now)
        self.known[threads] = np.maximum(self.known[threads], together)
        self.changed()

    def released(self, threads: Array, now: int) -> Clock:
        """What threads hand over together at this time."""
        together = self.known[threads].max(axis=0)
        together[np.flatnonzero(threads)] = now
        return np.asarray(together, np.int32)

    def acquire(self, threads: Array, clock: Clock) -> None:
        self.known[threads] = np.maximum(self.known[threads], clock)
        self.changed()

    def follow(self, threads: Array, started: Clock) -> None:
        """What threads have waited for began when others had come so far."""
        if self.came is not None:
            self.came[threads] = np.maximum(self.came[threads], started)

    def so_far(self, mine: Array, others: Array) -> Clock:
        """How far `others` have come for certain, for each of the threads `mine` (a column)."""
        known = self.known[mine, others]
        return known if self.came is None else np.maximum(known, self.came[mine, others])

    def learn(self, threads: Array, agent: int, time: int) -> None:
        self.known[threads, agent] = np.maximum(self.known[threads, agent], time)
        self.changed()

    def remember(self, threads: Array, other: Knowledge, now: int) -> None:
        """What `other` says of threads is what they knew at this moment."""
        self.known[threads] = other.known[threads]
        number = np.flatnonzero(threads)
        self.known[number, number] = now
        self.changed()

    # -- questions ----------------------------------------------------------------------------------------------

    def by_thread(self, kind: str, thread: Array, agent: Array, members: Array, time: Array) -> Array:
        """Whether each thread (or one, for all) knows of the access of `agent` (MANY: the groups in `members`) at its
        time."""
        if len(thread) == 1 and thread[0] >= 0:
            one = int(thread[0])
            return self._knows(self._one(one), ("one", one), kind, np.zeros(1, np.intp), agent, members, time)
        own = self._own()
        row = np.where(thread < 0, self.agents.lanes, thread)
        return self._knows(own, "own", kind, row, agent, members, time)

    def by_warpgroup(self, kind: str, group: int, agent: Array, members: Array, time: Array) -> Array:
        """The same for all threads of a warpgroup."""
        if group not in self._made:
            first = group * 4 * WARP
            own = self.known[first : first + 4 * WARP].copy()
            if self.now:
                np.fill_diagonal(own[:, first:], ALWAYS)
            self._made[group] = own.min(axis=0)[None]
        return self._knows(self._made[group], group, kind, np.zeros(1, np.intp), agent, members, time)

    def _one(self, thread: int) -> Clock:
        """`known` of one thread, where it knows itself."""
        if ("one", thread) not in self._made:
            own = self.known[thread : thread + 1].copy()
            if self.now:
                own[0, thread] = ALWAYS
            self._made["one", thread] = own
        return np.asarray(self._made["one", thread])

    def _own(self) -> Clock:
        """`known`, where a thread knows itself; in a row more what all threads know, for any of them."""
        if "own" not in self._made:
            own = self.known.copy()
            if self.now:
                np.fill_diagonal(own, ALWAYS)
            everyone = self.known[self.agents.consumers].min(axis=0)
            self._made["own"] = np.concatenate([own, everyone[None]])
        return np.asarray(self._made["own"])

    def _knows(self, rows: Clock, name: Any, kind: str, row: Array, agent: Array, members: Array, time: Array) -> Array:
        alike = len(agent) > 1 and all(len(x) == 1 or (x == x[0]).all() for x in (row, time, agent, members))
        if alike:  # as after one bulk copy
            one = self._knows(rows, name, kind, row[:1], agent[:1], members[:1], time[:1])
            return np.broadcast_to(one, agent.shape)
        fine = (agent < 0) | (time <= rows[row, np.maximum(agent, 0)])
        many = np.flatnonzero(agent == MANY)
        if len(many):
            of_groups = self._groups(rows, name, kind)
            fine[many] = _all_known(of_groups, np.broadcast_to(row, agent.shape)[many], members[many], time[many])
        return fine

    def _groups(self, rows: Clock, name: Any, kind: str) -> Clock:
        """What is known of the slowest agent of each group."""
        kind = kind if kind in ("fetch", "fill") else "thread"
        if (name, kind) not in self._made:
            self._made[name, kind] = self.agents.slowest(kind, rows)
        return np.asarray(self._made[name, kind])


def _all_known(of_groups: Clock, row: Array, members: Array, time: Array) -> Array:
    """Whether all groups in `members` are known of at `time`, by those whose knowledge of groups stands in `row`: sets are
    few, places many."""
    fine = np.ones(len(members), bool)
    left = np.arange(len(members))
    while len(left):
        first = int(members[left[0]])
        same = members[left] == first
        inside = [n for n in range(of_groups.shape[1]) if first >> n & 1]
        slowest = of_groups[:, inside].min(axis=1, initial=ALWAYS)
        found = left[same]
        fine[found] = time[found] <= slowest[row[found]]
        left = left[~same]
    return fine
