"""When two states of asynchronous work are the same to all that follows.

A time says when an agent did something, and is compared with what threads know of that agent, and with nothing else: of
each agent's times only their order among what is known of it counts, and what all threads know of is as old as anything.
Accesses that all know of are forgotten, but for writes, of which the asynchronous proxy may have to be told, and reads
without a fence that all know of, under which it may not write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tile_compiler.simt.checker.footprints import Track
from tile_compiler.simt.checker.knowledge import ALWAYS, WARP, Agents
from tile_compiler.simt.shadow import MANY, NOBODY
from tile_compiler.simt.thread_values import Array

if TYPE_CHECKING:
    from tile_compiler.simt.checker.engines import Engines

WRITES = ("write", "atomic")


class Order:
    """The order of times in columns, one for each agent, among `known` ones: rows of a table. Times before `oldest` of
    their column are as old as that."""

    def __init__(self, known: Array, oldest: Array) -> None:
        self.oldest = oldest.astype(np.int64)
        table = np.maximum(known, self.oldest)
        self.first = runs(table.T)  # neighbours have mostly the same column
        self.column = np.cumsum(np.isin(np.arange(known.shape[1]), self.first)) - 1
        self.offset = np.arange(len(self.first), dtype=np.int64) << 32
        self.times = np.unique(table[:, self.first] + self.offset)
        self.start = np.searchsorted(self.times, self.offset)
        self.parts = [self.first.tobytes(), self.of(table[:, self.first], self.first).tobytes()]

    def of(self, times: Array, agents: Any) -> Array:
        """How many known times are earlier than each of these, of their agents."""
        column = self.column[agents]
        clipped = np.maximum(times, self.oldest[agents]) + self.offset[column]
        return np.asarray(np.searchsorted(self.times, clipped) - self.start[column], np.int32)


def state_key(engines: Engines) -> int:
    """A number that is equal for states that nothing which follows can tell apart."""
    agents, knowledge = engines.agents, engines.knowledge
    known, lanes = knowledge.known, agents.lanes
    others = known.copy()
    np.fill_diagonal(others, ALWAYS)  # whoever acts knows of it
    oldest = others.min(axis=0)
    known = np.maximum(known, oldest)
    rows = runs(known)
    phases = [p for b in engines.barriers for p in (b.now, b.last, b.before)]
    under_way = _under_way(engines)
    told = np.zeros((len(under_way), agents.count), np.int32)  # what will be known when they are waited for
    for n, (which, time) in enumerate(under_way):
        told[n, which] = time
    tables = [known[rows], *(p.clock[None] for p in phases), told]
    if knowledge.came is not None:
        tables.append(np.pad(knowledge.came, ((0, 0), (0, agents.count - lanes))))
    order = Order(np.concatenate(tables), oldest)
    parts: list[Any] = [rows.tobytes(), *order.parts]
    every, threads = np.arange(agents.count), np.arange(lanes)
    if phases:
        arrived = np.stack([p.arrived for p in phases])
        waited, started = np.stack([p.waited for p in phases]), np.stack([p.started for p in phases])
        parts += [(arrived > 0).tobytes(), (waited > 0).tobytes(), order.of(arrived, every).tobytes()]
        parts += [order.of(t, threads).tobytes() for t in (waited, started)]
        parts.append(b"".join((b.last.waited > b.now.clock[:lanes]).tobytes() for b in engines.barriers))
    parts.append(order.of(engines.remote.last, threads).tobytes())
    made = [(b.initialized[0], t) for b in engines.barriers if b.initialized for t in (b.initialized[1], b.init_fence)]
    made += [(agents.copies(number), time) for number, (time, _) in sorted(engines.copies.items())]
    actors = np.asarray([a for a, _ in made], int)
    parts += [actors.tobytes(), order.of(np.asarray([t for _, t in made], int), actors).tobytes()]
    fences = Order(engines.fences.known[runs(engines.fences.known)], np.zeros(agents.count))
    parts += [runs(engines.fences.known).tobytes(), *fences.parts]
    for kind, track in engines.footprints.tracks.items():
        if track.used:
            parts += [kind, *_accesses(kind, track, agents, order, fences)]
    for queues in (engines.products, engines.stores):
        for number, queue in sorted(queues.items()):
            parts.append((number, tuple(b.facts() for b in (*queue.batches, queue.open))))
    parts += [b.facts() for b in engines.barriers]
    parts.append(tuple(sorted(map(hash, engines.touched))))
    return hash(tuple(parts))


def _under_way(engines: Engines) -> list[tuple[Any, int]]:
    """(the agents of an engine, the time of a batch of it)."""
    agents = engines.agents
    found: list[tuple[Any, int]] = []
    for number, queue in sorted(engines.products.items()):
        which = agents.products(np.arange(4 * number, 4 * number + 4))
        found += [(which, b.time) for b in (*queue.batches, queue.open)]
    for number, queue in sorted(engines.stores.items()):
        found += [(agents.stores(number // WARP), b.time) for b in (*queue.batches, queue.open)]
    return found


def _accesses(kind: str, track: Track, agents: Agents, order: Order, fences: Order) -> list[Any]:
    """What counts of a track."""
    first = runs(track.agent, track.members, track.time, track.fence)
    agent, members, time, fence = (t[first] for t in (track.agent, track.members, track.time, track.fence))
    rank = np.zeros((3, len(first)), np.int64)  # of the time among what is known, and among fences; of the fence
    old = np.ones(len(first), bool)  # whether all threads know of it, and of its fence if it is a read
    reads = kind == "read"
    one = np.flatnonzero(agent >= 0)
    which = agent[one]
    old[one] = (time[one] <= order.oldest[which]) & (_fenced(fence[one], order.oldest[which]) if reads else True)
    rank[:, one] = order.of(time[one], which), fences.of(time[one], which), order.of(fence[one], which)
    several = np.flatnonzero(agent == MANY)
    forms, form = np.unique(
        np.stack([members.view(np.int64), time, fence], axis=1)[several], axis=0, return_inverse=True
    )
    found = np.zeros((4, len(forms)), np.int64)  # of each form, whether it is old, and its ranks
    for n, (bits, *times) in enumerate(forms.tolist()):
        groups = [list(g) for bit, g in enumerate(agents.groups(kind)) if bits >> bit & 1]
        all_of_them = np.concatenate([np.asarray(g, int) for g in groups]) if groups else np.zeros(0, int)
        same = [np.full(len(all_of_them), t) for t in times]
        ranks = (order.of(same[0], all_of_them), fences.of(same[0], all_of_them), order.of(same[1], all_of_them))
        oldest = order.oldest[all_of_them]
        known = bool((times[0] <= oldest).all()) and (not reads or bool(_fenced(same[1], oldest).all()))
        found[:, n] = known, *(hash(r.tobytes()) for r in ranks)
    old[several], rank[:, several] = found[0, form], found[1:, form]
    if kind not in WRITES:
        agent, members = np.where(old, NOBODY, agent), np.where(old, 0, members)
        rank[:, old] = rank[1] = 0
        if not reads:
            rank[2] = 0
    rank[:, agent == NOBODY] = 0
    unfenced = (fence > 0) & (agent != NOBODY)
    again = runs(agent, members, *rank, unfenced)  # of those that were told apart
    return [first[again].tobytes(), *(t[again].tobytes() for t in (agent, members, *rank, unfenced))]


def _fenced(fence: Array, oldest: Array) -> Array:
    """Whether there has been a fence and all threads know of it."""
    return np.asarray((fence > 0) & (fence <= oldest))


def runs(*tables: Array) -> Array:
    """Where rows (or elements) begin that differ from those before them, in any of the tables: neighbours are mostly alike."""
    changes = np.zeros(max(0, len(tables[0]) - 1), bool)
    for table in tables:
        differs = table[1:] != table[:-1]
        changes |= differs if table.ndim == 1 else differs.any(axis=1)
    return np.concatenate([[0], np.flatnonzero(changes) + 1])
