"""What threads have done to memory since the last barrier; used where barriers are placed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

Touch = tuple[Any, float, float, int]  # SHARED or a global buffer, first byte, last byte, number of the access
Group = tuple[int, int]  # of threads: `tile_ir.GROUP`
SHARED = "shared memory"  # of which buffers may share bytes


@dataclass
class State:
    """What happened since the last barrier, and what is in flight by the number of groups closed after it: copies, and
    reads by wgmma.

    `unfenced`: writes of tiles that asynchronous work reads, by ordinary stores, since the last fence of the proxies;
    `fenced`: those that a fence but no barrier has followed. `storing`: what bulk stores may still read.
    `teams`: the same for each group of threads (`tile_ir.GROUP`), whose work among themselves the block does not see;
    `earlier`, of a group: what it did before its last barrier of its own, which the block's other threads have not passed.
    """

    reads: set[Touch] = field(default_factory=set)
    writes: set[Touch] = field(default_factory=set)
    atomics: set[Touch] = field(default_factory=set)
    flying: set[tuple[Touch, int]] = field(default_factory=set)
    reading: set[tuple[Touch, int]] = field(default_factory=set)
    unfenced: set[Touch] = field(default_factory=set)
    fenced: set[Touch] = field(default_factory=set)
    storing: set[Touch] = field(default_factory=set)
    teams: dict[Group, State] = field(default_factory=dict)
    earlier: State | None = None

    def copy(self) -> State:
        sets = {name: set(getattr(self, name)) for name in _SETS}
        earlier = None if self.earlier is None else self.earlier.copy()
        return State(**sets, teams={group: team.copy() for group, team in self.teams.items()}, earlier=earlier)

    def merge(self, other: State) -> None:
        for name in _SETS:
            getattr(self, name).update(getattr(other, name))
        if other.earlier is not None:
            self.earlier = self.earlier or State()
            self.earlier.merge(other.earlier)
        for group, team in other.teams.items():
            self.team(group).merge(team)

    def team(self, group: Group) -> State:
        """What the threads of a group have done for themselves."""
        return self.teams.setdefault(group, State())

    def barrier(self) -> None:
        """Of the block: everyone has passed it."""
        self.reads, self.writes, self.atomics, self.fenced, self.earlier = set(), set(), set(), set(), None
        for team in self.teams.values():
            team.barrier()

    def own_barrier(self) -> None:
        """Of a group alone: to the block what it did is as before."""
        past = self.earlier or State()
        past.merge(State(self.reads, self.writes, self.atomics))
        self.barrier()
        self.earlier = past

    def seen_by_block(self) -> list[State]:
        """What the groups did, as far as other threads of the block may not have seen it."""
        found = [state for team in self.teams.values() for state in (team, team.earlier)]
        return [state for state in found if state is not None]

    def fence(self) -> None:
        self.fenced |= self.unfenced
        self.unfenced = set()

    def stored(self) -> None:
        """Bulk stores have been waited for: that they read is known to the thread that waited."""
        self.reads |= self.storing
        self.storing = set()


_SETS = [f.name for f in fields(State) if f.name not in ("teams", "earlier")]


def overlap(a: Touch, b: Touch) -> bool:
    """Whether two accesses may share a byte."""
    return a[1] <= b[2] and b[1] <= a[2] and _same_memory(a[0], b[0])


def _same_memory(a: Any, b: Any) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a is b
    return bool(a.same_as(b))
