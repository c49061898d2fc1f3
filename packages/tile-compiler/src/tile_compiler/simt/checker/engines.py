"""The state of a walk that asynchronous work adds: what threads know, and what is under way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tile_compiler.simt.checker.footprints import Footprints
from tile_compiler.simt.checker.knowledge import Agents, Knowledge
from tile_compiler.simt.checker.mbarriers import Mbarrier
from tile_compiler.simt.checker.remote import Remote
from tile_compiler.simt.checker.state_key import state_key
from tile_compiler.simt.thread_values import Array


@dataclass(frozen=True)
class Batch:
    """Products, or stores, that are waited for together: `time` of the last; what it keeps busy beside memory.

    `accumulators`: (registers, shape of the instruction, statement); `operands`: (registers, statement).
    """

    time: int = 0
    accumulators: frozenset[tuple[Any, Any, int]] = frozenset()
    operands: frozenset[tuple[Any, int]] = frozenset()

    def __or__(self, other: Batch) -> Batch:
        return Batch(max(self.time, other.time), self.accumulators | other.accumulators, self.operands | other.operands)

    def facts(self) -> Any:
        """All but the time."""
        return (bool(self.time), self.accumulators, self.operands)


@dataclass
class Queue:
    """Batches under way, oldest first, and the one that is still open."""

    batches: list[Batch] = field(default_factory=list)
    open: Batch = field(default_factory=Batch)

    def copy(self) -> Queue:
        return Queue(list(self.batches), self.open)

    def commit(self) -> None:
        if self.batches or self.open.time:  # older than all that is under way: as good as done
            self.batches.append(self.open)
        self.open = Batch()

    def wait(self, pending: int) -> int:
        """All but the newest `pending` batches end: the time of the last that did."""
        done = 0
        while len(self.batches) > pending:
            done = max(done, self.batches.pop(0).time)
        return done

    def under_way(self) -> list[Batch]:
        return [b for b in (*self.batches, self.open) if b.time]

    def facts(self) -> tuple[Any, ...]:
        """What tells two queues apart beside times: what is over at the front is as good as nothing."""
        batches = [*self.batches, self.open]
        first = next((n for n, batch in enumerate(batches) if batch.time), len(batches))
        return tuple(batch.facts() for batch in batches[first:])

    def merge(self, other: Queue) -> None:
        """A batch counts as young as it is in either: waits end the oldest first."""
        count = max(len(self.batches), len(other.batches))
        padded = [[*([Batch()] * (count - len(q.batches))), *q.batches] for q in (self, other)]
        self.batches = [a | b for a, b in zip(*padded)]
        self.open = self.open | other.open


class Engines:
    """`products` by warpgroup, `stores` by thread; `touched`: registers that ordinary statements touched since the last
    `wgmma_fence`, as (registers, statement). `issued`: the statement of each barrier's last copy, until it is known."""

    def __init__(self, size: int, agents: Agents, barriers: Sequence[Mbarrier], blocks: int = 1) -> None:
        self.agents = agents
        self.knowledge = Knowledge.none(agents, together=blocks > 1)
        self.fences = Knowledge.none(agents, now=False)
        self.footprints = Footprints(size, agents)
        self.barriers = list(barriers)
        self.products: dict[int, Queue] = {}
        self.stores: dict[int, Queue] = {}
        self.touched: dict[Any, int] = {}
        self.copies: dict[int, tuple[int, int]] = {}  # by barrier: time and statement of the last copy
        self.acted = np.zeros(agents.count, np.int32)  # when each agent last did something
        self.remote = Remote.none(blocks, agents.lanes)

    def copy(self, table: Callable[[Any], Any] = np.copy) -> Engines:
        """`table`: see `Shadow.copy`."""
        new = Engines(0, self.agents, [b.copy() for b in self.barriers])
        new.knowledge, new.fences = self.knowledge.copy(table), self.fences.copy(table)
        new.footprints = self.footprints.copy(table)
        new.products = {k: q.copy() for k, q in self.products.items()}
        new.stores = {k: q.copy() for k, q in self.stores.items()}
        new.remote = self.remote.copy()
        new.touched, new.copies, new.acted = dict(self.touched), dict(self.copies), self.acted.copy()
        return new

    def clocks(self) -> list[Array]:
        came = [] if self.knowledge.came is None else [self.knowledge.came]
        return [self.knowledge.known, *came, self.fences.known, *(c for b in self.barriers for c in b.clocks())]

    def merge(self, other: Engines) -> None:
        """What may have happened if either state may be the present one.

        Who knows all that an agent has done in one state knows as much as is needed there, whatever it did in the other.
        """
        latest = max(int(t.max(initial=0)) for s in (self, other) for t in (*s.clocks(), s.acted))
        for state in (self, other):
            known = [state.knowledge.known, state.fences.known]
            for clock in (*known, *(p.clock for b in state.barriers for p in (b.now, b.last, b.before))):
                clock[clock >= state.acted] = latest
        self.acted = np.maximum(self.acted, other.acted)
        self.knowledge.merge(other.knowledge)
        self.fences.merge(other.fences)
        self.footprints.merge(other.footprints)
        self.remote.merge(other.remote)
        for mine, yours in zip(self.barriers, other.barriers):
            mine.merge(yours)
        for queues, others in ((self.products, other.products), (self.stores, other.stores)):
            for key, queue in others.items():
                queues.setdefault(key, Queue()).merge(queue)
        self.touched = {**other.touched, **self.touched}
        self.copies = {**other.copies, **self.copies}

    def record(self, kind: str, place: Array, thread: Array, time: int, site: int) -> None:
        """Ordinary accesses of threads."""
        self.footprints.record(kind, place, thread, time, site, self.knowledge)
        self.acted[np.where(thread < 0, 0, thread)] = time
        if (thread < 0).any():
            self.acted[self.agents.consumers] = time

    def queue(self, queues: dict[int, Queue], key: int) -> Queue:
        return queues.setdefault(key, Queue())

    def key(self) -> int:
        """A number that is equal for states that nothing which follows can tell apart."""
        return state_key(self)
