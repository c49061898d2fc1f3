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

SMALL = 1 << 20  # numbers that tables are made for
WRITES = ("write", "atomic")


class Order:
    """The order of times in columns, one for each agent, among `known` ones: rows of a table. Times before `oldest` of
    their column are as old as that. Neighbours have mostly the same column: `column` numbers the different ones."""

    def __init__(self, known: Array, oldest: Array) -> None:
        self.oldest = oldest
        table = np.maximum(known, oldest)
        self.first = runs(table.T)
        begins = np.zeros(known.shape[1], np.intp)
        begins[self.first] = 1
        self.column = np.cumsum(begins) - 1
        own, every = table[:, self.first], np.arange(len(self.first))
        self.times, number = _numbered(own)  # of all columns
        stands = np.zeros((len(self.first), len(self.times) + 1), np.int32)  # whether a column has a time
        stands[every, number + 1] = 1
        self.earlier = np.cumsum(stands, axis=1, dtype=np.int32)  # how many of a column's are earlier than each time
        self.parts = [self.first.tobytes(), self.earlier[every, number].tobytes()]

    def of(self, times: Array, agents: Any) -> Array:
        """How many known times are earlier than each of these, of their agents."""
        return self._ranks(times, self.oldest[agents], self.column[agents])

    def table(self, times: Array) -> Array:
        """The same of each time (rows) in each column."""
        return self._ranks(times[:, None], self.oldest[self.first], np.arange(len(self.first)))

    def each(self, agents: Array, times: Array, number: Array) -> Array:
        """As `of`, of times that are given as numbers of these, which are few if columns are."""
        if len(times) * len(self.first) > len(agents):
            return self.of(times[number], agents)
        return np.asarray(self.table(times)[number, self.column[agents]])

    def _ranks(self, times: Array, oldest: Array, column: Array) -> Array:
        return np.asarray(self.earlier[column, np.searchsorted(self.times, np.maximum(times, oldest))])


def state_key(engines: Engines) -> int:
    """A number that is equal for states that nothing which follows can tell apart."""
    agents, knowledge = engines.agents, engines.knowledge
    lanes = agents.lanes
    rows, known, oldest = _known(knowledge.known)
    phases = [p for b in engines.barriers for p in (b.now, b.last, b.before)]
    under_way = _under_way(engines)
    told = np.zeros((len(under_way), agents.count), np.int32)  # what will be known when they are waited for
    for n, (which, time) in enumerate(under_way):
        told[n, which] = time
    tables = [known, *(p.clock[None] for p in phases), told]
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
    fenced = runs(engines.fences.known)
    fences = Order(engines.fences.known[fenced], np.zeros(agents.count, np.int32))
    parts += [fenced.tobytes(), *fences.parts]
    for kind, track in engines.footprints.tracks.items():
        if track.used:
            parts += [kind, *_accesses(kind, track, agents, order, fences)]
    for queues in (engines.products, engines.stores):
        parts.append(tuple((number, facts) for number, queue in sorted(queues.items()) if (facts := queue.facts())))
    parts += [b.facts() for b in engines.barriers]
    parts.append(tuple(sorted(map(hash, engines.touched))))
    return hash(tuple(parts))


def _known(known: Array) -> tuple[Array, Array, Array]:
    """(the first of neighbouring threads that know the same, what each of these knows, what all others know of an agent)."""
    rows = runs(known)
    few = known[rows]
    others = few.copy()
    alone = np.flatnonzero(np.diff(np.append(rows, len(known))) == 1)
    others[alone, rows[alone]] = ALWAYS  # whoever acts knows of it
    oldest = others.min(axis=0)
    few = np.maximum(few, oldest)
    again = runs(few)
    return rows[again], few[again], oldest


def _under_way(engines: Engines) -> list[tuple[Any, int]]:
    """(the agents of an engine, the time of a batch of it)."""
    agents = engines.agents
    found: list[tuple[Any, int]] = []
    for number, queue in sorted(engines.products.items()):
        which = agents.products(np.arange(4 * number, 4 * number + 4))
        found += [(which, b.time) for b in queue.under_way()]
    for number, queue in sorted(engines.stores.items()):
        found += [(agents.stores(number // WARP), b.time) for b in queue.under_way()]
    return found


def _accesses(kind: str, track: Track, agents: Agents, order: Order, fences: Order) -> list[Any]:
    """What counts of a track."""
    first = runs(track.agent, track.members, track.time, track.fence)
    agent, members, time, fence = (t[first] for t in (track.agent, track.members, track.time, track.fence))
    reads = kind == "read"
    rank = np.zeros((3, len(first)), np.int64)  # of the time among what is known, and among fences; of the fence
    old = np.ones(len(first), bool)  # whether all threads know of it, and of its fence if it is a read
    one, several = np.flatnonzero(agent >= 0), np.flatnonzero(agent == MANY)
    if len(one):
        oldest = order.oldest[agent[one]]
        old[one] = (time[one] <= oldest) & (_fenced(fence[one], oldest) if reads else True)
        left = one if kind in WRITES else one[~old[one]]
        if len(left):
            when, told = (agent[left], *_numbered(time[left])), (agent[left], *_numbered(fence[left]))
            rank[:, left] = order.each(*when), fences.each(*when), order.each(*told)
    if len(several):
        held = members[several], time[several], fence[several]
        old[several], rank[:, several] = _by_groups(kind, *held, agents, order, fences)
    if kind not in WRITES:
        agent, members = np.where(old, NOBODY, agent), np.where(old, 0, members)
        rank[:, old] = rank[1] = 0
        if not reads:
            rank[2] = 0
    rank[:, agent == NOBODY] = 0
    unfenced = (fence > 0) & (agent != NOBODY)
    again = runs(agent, members, *rank, unfenced)  # of those that were told apart
    return [first[again].tobytes(), *(t[again].tobytes() for t in (agent, members, *rank, unfenced))]


def _by_groups(
    kind: str, members: Array, time: Array, fence: Array, agents: Agents, order: Order, fences: Order
) -> tuple[Array, Array]:
    """(whether they are old, their ranks) of accesses by several agents each. Sets, times, and fences are few."""
    old, rank = np.zeros(len(time), bool), np.zeros((3, len(time)), np.int64)
    groups = agents.groups(kind)
    (times, time_of), (fenced, fence_of) = _numbered(time), _numbered(fence)
    tables = order.table(times), fences.table(times), order.table(fenced)
    left = np.arange(len(members))
    while len(left):
        bits = int(members[left[0]])
        here = members[left] == members[left[0]]
        these, left = left[here], left[~here]
        those = np.concatenate([np.zeros(0, int), *(np.asarray(g) for n, g in enumerate(groups) if bits >> n & 1)])
        oldest = order.oldest[those].min(initial=ALWAYS)
        old[these] = (time[these] <= oldest) & (_fenced(fence[these], oldest) if kind == "read" else True)
        known, told = np.unique(order.column[those]), np.unique(fences.column[those])
        for n, (table, columns, number) in enumerate(zip(tables, (known, told, known), (time_of, time_of, fence_of))):
            hashes = [hash(row.tobytes()) for row in table[:, columns]]
            rank[n, these] = np.asarray(hashes, np.int64)[number[these]]
    return old, rank


def _numbered(values: Array) -> tuple[Array, Array]:
    """(the different values, which of them each one is)."""
    if values.max(initial=0) > SMALL:
        found, number = np.unique(values, return_inverse=True)
        return found, number.reshape(values.shape)
    found = np.zeros(int(values.max(initial=0)) + 1, bool)
    found[values] = True
    return np.flatnonzero(found), (np.cumsum(found) - 1)[values]


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
