"""Who touched each place of the memory that threads and engines share, and when: the part that clocks decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tile_compiler.simt.checker.knowledge import WARP, Agents, Knowledge
from tile_compiler.simt.shadow import MANY, NOBODY
from tile_compiler.simt.thread_values import Array

ORDINARY = ("read", "write", "atomic")
KINDS = (*ORDINARY, "fetch", "fill")  # fetch, fill: the asynchronous proxy reads and writes
AGAINST = {
    "read": ("write", "atomic", "fill"),
    "atomic": ("write", "read", "fill", "fetch"),
    "write": KINDS,
    "fetch": ("write", "atomic", "fill"),
    "fill": KINDS,
}


class Track:
    """For one kind of access and each place: the last who did it and did not know of the one before.

    `agent` is NOBODY, an agent, or MANY with the groups in `members` (see `Agents.groups`); all of them count as late as
    the last, at `time`. `fence`: when all of them had made the access visible to the asynchronous proxy; 0: not yet.
    `used`: whether anybody ever did; most kernels lack some kinds of access.
    """

    def __init__(self, size: int) -> None:
        self.agent = np.full(size, NOBODY, np.int16)
        self.members = np.zeros(size, np.uint64)
        self.time = np.zeros(size, np.int32)
        self.site = np.full(size, -1, np.int32)
        self.fence = np.zeros(size, np.int32)
        self.used = False

    def _tables(self) -> list[Array]:
        return [self.agent, self.members, self.time, self.site, self.fence]

    def copy(self, table: Callable[[Any], Any] = np.copy) -> Track:
        """`table`: see `Shadow.copy`."""
        new = Track(0)
        new.agent, new.members, new.time, new.site, new.fence = map(table, self._tables())
        new.used = self.used
        return new

    def grow(self, size: int) -> None:
        more = Track(size - len(self.agent))
        self.agent, self.members, self.time, self.site, self.fence = (
            np.concatenate(pair) for pair in zip(self._tables(), more._tables())
        )

    def nobody(self, place: Array) -> bool:
        return not self.used or bool((self.agent[place] == NOBODY).all())

    def forget(self, place: Array) -> None:
        self.agent[place] = NOBODY
        self.members[place] = 0

    def put(self, place: Array, agent: int, members: int, time: int, site: int) -> None:
        """In place of all that was there: one agent, or MANY."""
        self.used = True
        self.agent[place], self.members[place] = agent, np.uint64(members)
        self.time[place], self.site[place], self.fence[place] = time, site, 0

    def add(
        self, place: Array, agent: Array, groups: Sequence[tuple[Array | slice, int]], time: int, site: int
    ) -> None:
        """`agent`: of each place, or one; `groups`: (which of the places, bits of the groups that touch them)."""
        self.used = True
        there = self.agent[place]
        new = np.where((there != NOBODY) & (there != agent), MANY, agent)
        self.agent[place] = new
        if len(agent) > 1:
            self.agent[place[self.agent[place] != new]] = MANY  # several at one place in this statement
        for which, bits in groups:
            self.members[place[which]] |= np.uint64(bits)
        self.time[place], self.site[place], self.fence[place] = time, site, 0

    def merge(self, other: Track) -> None:
        mine, yours = self.agent != NOBODY, other.agent != NOBODY
        same = self.agent == other.agent
        both = mine & yours
        fence = np.where((self.fence == 0) | (other.fence == 0), 0, np.maximum(self.fence, other.fence))
        self.fence = np.where(both, fence, np.where(mine, self.fence, other.fence))
        self.site = np.where(mine & (self.time >= other.time), self.site, np.where(yours, other.site, self.site))
        self.time = np.maximum(np.where(mine, self.time, 0), np.where(yours, other.time, 0))
        self.members = self.members | other.members
        self.used = self.used or other.used
        merged = np.where(both & ~same, MANY, np.where(mine, self.agent, other.agent))
        self.agent = merged.astype(np.int16)


class Footprints:
    """One `Track` for each kind of access."""

    def __init__(self, size: int, agents: Agents) -> None:
        self.agents = agents
        self.tracks = {kind: Track(size) for kind in KINDS}

    def copy(self, table: Callable[[Any], Any] = np.copy) -> Footprints:
        """`table`: see `Shadow.copy`."""
        new = Footprints(0, self.agents)
        new.tracks = {kind: t.copy(table) for kind, t in self.tracks.items()}
        return new

    @property
    def size(self) -> int:
        return len(self.tracks["read"].agent)

    def grow(self, size: int) -> None:
        if size > self.size:
            for track in self.tracks.values():
                track.grow(size)

    def merge(self, other: Footprints) -> None:
        size = max(self.size, other.size)
        self.grow(size)
        other.grow(size)
        for kind, track in self.tracks.items():
            track.merge(other.tracks[kind])

    # -- questions ----------------------------------------------------------------------------------------------

    def known(self, kind: str, place: Array, thread: Array, knowledge: Knowledge) -> Array:
        """Whether each thread knows of everything of this kind at its place."""
        track = self.tracks[kind]
        if track.nobody(place):
            return np.ones(len(place), bool)
        return knowledge.by_thread(kind, thread, track.agent[place], track.members[place], track.time[place])

    def known_to_warpgroup(self, kind: str, place: Array, group: int, knowledge: Knowledge) -> Array:
        track = self.tracks[kind]
        if track.nobody(place):
            return np.ones(len(place), bool)
        return knowledge.by_warpgroup(kind, group, track.agent[place], track.members[place], track.time[place])

    def visible(self, kind: str, place: Array, who: Array | int, knowledge: Knowledge, fences: Knowledge) -> Array:
        """Whether what was written there is visible to the asynchronous proxy of threads `who` (or a warpgroup).

        The writers have made a fence that they know of; or they have made one themselves since they know of the writes.
        `fences`: what each thread knew at its last fence.
        """
        track = self.tracks[kind]
        if track.nobody(place):
            return np.ones(len(place), bool)
        held = track.agent[place], track.members[place]
        fence, time = track.fence[place], track.time[place]
        if isinstance(who, int):
            by_writer = knowledge.by_warpgroup(kind, who, *held, fence)
            by_reader = fences.by_warpgroup(kind, who, *held, time)
        else:
            by_writer = knowledge.by_thread(kind, who, *held, fence)
            by_reader = fences.by_thread(kind, who, *held, time)
        return (held[0] == NOBODY) | (fence > 0) & by_writer | by_reader

    def let_go(self, kind: str, place: Array, who: Array, knowledge: Knowledge) -> Array:
        """Whether those who made ordinary accesses there have made a fence after them that threads `who` know of: then
        the asynchronous proxy may write. A fence by others does not wait for loads that are still on their way."""
        track = self.tracks[kind]
        if track.nobody(place):
            return np.ones(len(place), bool)
        held, fence = (track.agent[place], track.members[place]), track.fence[place]
        return (held[0] == NOBODY) | (fence > 0) & knowledge.by_thread(kind, who, *held, fence)

    # -- changes ------------------------------------------------------------------------------------------------

    def record(self, kind: str, place: Array, thread: Array, time: int, site: int, knowledge: Knowledge) -> None:
        """An ordinary access. What one of those who touch a place knows of need not be kept."""
        track = self.tracks[kind]
        track.forget(place[self.known(kind, place, thread, knowledge)])
        if (thread < 0).any():
            everyone = (1 << self.agents.warps) - 1
            track.add(place, np.asarray([MANY]), [(slice(None), everyone)], time, site)
            return
        warp = thread // WARP
        groups: list[tuple[Array | slice, int]] = [(warp == w, 1 << int(w)) for w in np.flatnonzero(np.bincount(warp))]
        track.add(place, thread, groups, time, site)

    def note(self, kind: str, place: Array, agent: int, members: int, time: int, site: int, known: Array) -> None:
        """An asynchronous access by `agent`, or by MANY: the groups of the bits `members`."""
        track = self.tracks[kind]
        if known.all():
            track.put(place, agent, members, time, site)
            return
        track.forget(place[known])
        track.add(place, np.asarray([agent]), [(slice(None), members)], time, site)

    def fence(self, threads: Array, time: int) -> None:
        """Threads order their accesses so far before what the asynchronous proxy does from here on."""
        whole = [threads[w * WARP : (w + 1) * WARP].all() for w in range(self.agents.warps)]
        bits = np.uint64(sum(1 << w for w, all_of_it in enumerate(whole) if all_of_it))
        for kind in ORDINARY:
            track = self.tracks[kind]
            if not track.used:
                continue
            one = (track.agent >= 0) & threads[np.clip(track.agent, 0, self.agents.lanes - 1)]
            many = (track.agent == MANY) & (track.members & ~bits == 0)
            track.fence[(one | many) & (track.fence == 0)] = time
