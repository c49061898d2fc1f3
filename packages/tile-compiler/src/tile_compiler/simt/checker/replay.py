"""Whether warps that wait for each other can all come to their end: their waits and arrivals, replayed side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tile_compiler.simt.checker.knowledge import WARP
from tile_compiler.simt.thread_values import Array

WHOLE = -1  # the barrier of all threads, among those of the hardware
CLUSTER = -2  # that of all threads of all blocks of the cluster
WITHOUT_PRODUCERS = -3  # the same behind which producers have nothing to do: it waits until they have ended (PTX ISA)
MBARRIER, HARDWARE = "mbarrier", "hardware"  # kinds of barriers, beside their numbers


class Told(NamedTuple):
    """What warps did to a barrier. `warps`: (number, how many of its lanes); `amount`: how often each lane arrives, or how
    many threads meet at a barrier of the hardware; `waits`: for how many arrivals in all, or whether (0: not)."""

    warps: tuple[tuple[int, int], ...]
    barrier: Any
    amount: int
    waits: int
    site: int


class Event(NamedTuple):
    """`arrives`: threads that count at `barrier`; `waits`: for how many of them in all (0: it does not wait)."""

    barrier: Any
    arrives: int
    waits: int
    site: int


class Replay:
    """The order of the text is one in which mbarriers let everyone pass; hardware barriers by which warps take turns are
    passed in others. So what each warp does to all barriers is written down and replayed, each warp going on as long as
    it can. Waits ask for a number of arrivals, which only grows: if this order comes to the end, every order does.
    """

    def __init__(self) -> None:
        self.told: list[Told] = []

    @property
    def turns(self) -> bool:
        """Whether there are other barriers of the hardware than those of all threads."""
        return any(t.barrier[0] == HARDWARE and t.barrier[1][0] not in (WHOLE, CLUSTER) for t in self.told)

    def mbarrier(self, threads: Array, lane: Array, number: int, arrives: int, waits: int, site: int) -> None:
        """Each of the threads arrives so often, or waits until there have been so many arrivals."""
        self.told.append(Told(_warps(threads, lane), (MBARRIER, number), arrives, waits, site))

    def hardware(
        self, threads: Array, lane: Array, number: int, size: int, waits: bool, site: int, block: int = 0
    ) -> None:
        """Warps come to a barrier of `size` threads of their block; they wait for the round that they are a part of, or
        go on."""
        self.told.append(Told(_warps(threads, lane), (HARDWARE, (number, block)), size, waits, site))

    def left_to_consumers(self) -> list[Told]:
        """The barriers of the cluster at which the ends of producers count for them, those of repeated walks too."""
        return [t for t in self.told if t.barrier == (HARDWARE, (WITHOUT_PRODUCERS, 0))]

    def again(self, told: Sequence[Told], later: Mapping[int, int]) -> None:
        """The same once more, where each mbarrier has had so many more arrivals than it had then."""
        for t in told:
            more = later.get(t.barrier[1], 0) if t.waits and t.barrier[0] == MBARRIER else 0
            self.told.append(t._replace(waits=t.waits + more) if more else t)

    def _events(self) -> tuple[dict[int, list[Event]], dict[Any, int]]:
        """(what each warp does, how many threads meet at each barrier of the hardware)."""
        events: dict[int, list[Event]] = {}
        met: dict[tuple[int, Any], int] = {}  # by warp: how often it has waited at a hardware barrier
        sizes: dict[Any, int] = {}
        for t in self.told:
            for warp, lanes in t.warps:
                arrives, waits = t.amount * lanes, t.waits
                if t.barrier[0] == HARDWARE:
                    sizes[t.barrier] = t.amount
                    rounds = met[warp, t.barrier] = met.get((warp, t.barrier), 0) + 1
                    arrives, waits = WARP, rounds * t.amount if t.waits else 0
                events.setdefault(warp, []).append(Event(t.barrier, arrives, waits, t.site))
        return events, sizes

    def stuck(self) -> list[Event]:
        """The waits at which warps remain for ever."""
        came: dict[Any, int] = {}
        events, sizes = self._events()
        queues = {warp: deque(of_it) for warp, of_it in events.items()}
        waiting: dict[int, Event] = {}
        moved = True
        while moved:
            moved = False
            for warp, queue in queues.items():
                while warp in waiting or queue:
                    event = waiting.get(warp)
                    if event is None:
                        event = queue.popleft()
                        came[event.barrier] = came.get(event.barrier, 0) + event.arrives
                        moved = True
                    if came.get(event.barrier, 0) < event.waits:
                        waiting[warp] = event
                        break
                    if waiting.pop(warp, None) is not None:
                        moved = True
        # Arrivals at hardware barriers in rounds that are not complete: nobody waits for them.
        last = {e.barrier: e for of_it in events.values() for e in of_it if e.barrier in sizes}
        return [*waiting.values(), *(e for barrier, e in last.items() if came.get(barrier, 0) % sizes[barrier])]


def _warps(threads: Array, lane: Array) -> tuple[tuple[int, int], ...]:
    """(warp, how many of its lanes)."""
    count = np.bincount(lane[threads] // WARP)
    return tuple((int(w), int(count[w])) for w in np.flatnonzero(count))
