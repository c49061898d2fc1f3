"""The phases of an mbarrier, and the proof that every wait waits for the phase that it is meant for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tile_compiler.simt.checker.knowledge import Clock, Knowledge
from tile_compiler.simt.thread_values import Array

Refute = Callable[..., Exception]


@dataclass
class Phase:
    """A phase that has ended: what it hands over, and when who waited for it (threads), arrived (agents) or started its
    copies (threads); 0: never."""

    clock: Clock
    arrived: Clock
    waited: Clock
    started: Clock

    @classmethod
    def empty(cls, knowledge: Knowledge) -> Phase:
        agents = knowledge.agents
        zeros = np.zeros(agents.count, np.int32)
        return cls(zeros, zeros.copy(), *(np.zeros(agents.lanes, np.int32) for _ in range(2)))

    def copy(self) -> Phase:
        return Phase(*(t.copy() for t in (self.clock, self.arrived, self.waited, self.started)))

    def merge(self, other: Phase) -> None:
        """One of the two: nobody can rely on more than both say."""
        self.clock = np.minimum(self.clock, other.clock)
        self.arrived = np.maximum(self.arrived, other.arrived)
        self.waited = np.maximum(self.waited, other.waited)
        self.started = np.minimum(self.started, other.started)

    def over(self, threads: Array, knowledge: Knowledge) -> Array:
        """Of which of the threads it is certain that they act after its end.

        They know someone who has waited for it, or they know all its arrivals and copies.
        """
        mine = np.flatnonzero(threads)[:, None]
        agents = np.flatnonzero(self.arrived)
        came = (self.arrived[agents] <= knowledge.known[mine, agents]) | (agents == mine)
        over = came.all(axis=1) & (len(agents) > 0)
        if not over.all():
            others = np.flatnonzero(self.waited > 0)
            waited = (self.waited[others] <= knowledge.so_far(mine, others)) | (others == mine)
            over |= waited.any(axis=1)
        return np.asarray(over)


@dataclass
class Mbarrier:
    """One mbarrier: `count` arrivals end a phase, once the bytes that were announced have come.

    `ended` counts phases; None: how many is not known, as memory decides which statements ran. `sites`: the last
    statements that arrived, announced bytes, copied and waited, by these words.
    """

    name: str
    count: int
    number: int
    now: Phase
    last: Phase
    before: Phase
    ended: int | None = 0
    pending: int = 0
    outstanding: int = 0
    initialized: tuple[int, int, int] | None = None  # thread, time, statement
    init_fence: int = 0
    sites: dict[str, int] = field(default_factory=dict)

    @classmethod
    def fresh(cls, name: str, count: int, number: int, knowledge: Knowledge) -> Mbarrier:
        now, last, before = (Phase.empty(knowledge) for _ in range(3))
        return cls(name, count, number, now, last, before, pending=count)

    def copy(self) -> Mbarrier:
        now, last, before = self.now.copy(), self.last.copy(), self.before.copy()
        return replace(self, now=now, last=last, before=before, sites=dict(self.sites))

    def merge(self, other: Mbarrier) -> None:
        same = (self.ended, self.pending, self.outstanding) == (other.ended, other.pending, other.outstanding)
        waits = zip((self.last.waited, self.before.waited), (other.last.waited, other.before.waited))
        if not same or any(((mine > 0) != (yours > 0)).any() for mine, yours in waits):
            self.ended = None
        for mine, yours in ((self.now, other.now), (self.last, other.last), (self.before, other.before)):
            mine.merge(yours)
        self.init_fence = min(self.init_fence, other.init_fence)
        if other.initialized is None:
            self.initialized = None

    # -- what happens to it ---------------------------------------------------------------------------------------

    def announce(self, size: int) -> None:
        self.outstanding += size

    def arrive(self, threads: Array, count: int, time: int, knowledge: Knowledge, refute: Refute) -> None:
        """Each of the threads arrives `count` times."""
        self._in_phase(threads, knowledge, refute, "arrival")
        arriving = int(threads.sum()) * count
        if arriving > self.pending:
            raise refute("arrivals", self, came=self.count - self.pending + arriving)
        self.pending -= arriving
        self.now.clock = np.maximum(self.now.clock, knowledge.released(threads, time))
        self.now.arrived[np.flatnonzero(threads)] = time
        self._end(refute)

    def copied(self, threads: Array, size: int, time: int, knowledge: Knowledge, refute: Refute) -> None:
        """A copy of each of the threads has brought its bytes."""
        self._in_phase(threads, knowledge, refute, "copy")
        agent = knowledge.agents.copies(self.number)
        self.outstanding -= size * int(threads.sum())
        self.now.clock[agent] = self.now.arrived[agent] = time
        self.now.started[threads] = time
        self._end(refute)

    def wait(self, threads: Array, parity: int, time: int, knowledge: Knowledge, refute: Refute) -> None:
        """Threads wait for the phase of this parity: the one that ended last, or it never ends."""
        assert self.ended is not None
        if self.outstanding < 0:
            raise refute("more bytes", self)
        if self.ended % 2 == parity:
            raise refute("never", self)
        if self.ended >= 2 and not self.before.over(threads, knowledge).all():
            raise refute("too early", self)
        self.last.waited[threads] = np.where(self.last.waited[threads] > 0, self.last.waited[threads], time)
        if self.ended:
            knowledge.acquire(threads, self.last.clock)
            knowledge.follow(threads, self.last.started)

    def _in_phase(self, threads: Array, knowledge: Knowledge, refute: Refute, what: str) -> None:
        """What threads do counts for the present phase only if the one before is over by then."""
        if self.ended and not self.last.over(threads, knowledge).all():
            raise refute("phase before", self, what=what)

    def _end(self, refute: Refute) -> None:
        if self.pending or self.outstanding:
            return
        late = (self.last.waited > 0) & (self.last.waited > self.now.clock[: len(self.last.waited)])
        if late.any():
            raise refute("overtaken", self, thread=int(np.argmax(late)))
        if self.ended is not None:
            self.ended += 1
        self.pending = self.count
        self.before, self.last = self.last, self.now
        fresh = np.zeros_like
        self.now = Phase(*(fresh(t) for t in (self.last.clock, self.last.arrived, self.last.waited, self.last.started)))

    # -- its state ------------------------------------------------------------------------------------------------

    def clocks(self) -> list[Clock]:
        phases = (self.now, self.last, self.before)
        return [t for p in phases for t in (p.clock, p.arrived, p.waited, p.started)]

    def facts(self) -> Any:
        """What tells two states apart beside the clocks; phases count by their parity."""
        ended = self.ended if self.ended is None or self.ended < 2 else 2 + self.ended % 2
        return (ended, self.pending, self.outstanding, self.initialized is None, bool(self.init_fence))
