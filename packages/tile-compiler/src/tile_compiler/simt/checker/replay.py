"""Whether warps that wait for each other can all come to their end: their waits and arrivals, replayed side by side."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tile_compiler.simt.checker.knowledge import WARP
from tile_compiler.simt.thread_values import Array

WHOLE = -1  # the barrier of all threads, among those of the hardware
CLUSTER = -2  # that of all threads of all blocks of the cluster


@dataclass(frozen=True)
class Event:
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
        self.events: dict[int, deque[Event]] = {}
        self.met: dict[tuple[int, Any], int] = {}  # by warp: how often it has waited at a hardware barrier
        self.sizes: dict[tuple[int, int], int] = {}  # of hardware barriers
        self.turns = False  # whether there are others than the barrier of all
        self.told: list[tuple[Any, ...]] = []  # what was written down, as it was asked for

    def mbarrier(self, threads: Array, lane: Array, number: int, arrives: int, waits: int, site: int) -> None:
        """Each of the threads arrives so often, or waits until there have been so many arrivals."""
        self.told.append((threads, lane, number, arrives, waits, site))
        for warp, count in _warps(threads, lane):
            self._add(warp, Event(("mbarrier", number), arrives * count, waits, site))

    def hardware(
        self, threads: Array, lane: Array, number: int, size: int, waits: bool, site: int, block: int = 0
    ) -> None:
        """Warps come to a barrier of `size` threads of their block; they wait for the round that they are a part of, or
        go on."""
        self.told.append((threads, lane, number, size, waits, site, block))
        self.turns |= number not in (WHOLE, CLUSTER)
        barrier = (number, block)
        self.sizes[barrier] = size
        for warp, _ in _warps(threads, lane):
            rounds = self.met[warp, barrier] = self.met.get((warp, barrier), 0) + 1
            self._add(warp, Event(("hardware", barrier), WARP, rounds * size if waits else 0, site))

    def again(self, told: Sequence[tuple[Any, ...]], later: Mapping[int, int]) -> None:
        """The same once more, where each mbarrier has had so many more arrivals than it had then."""
        for threads, lane, number, *rest in told:
            if len(rest) == 4:
                size, waits, site, block = rest
                self.hardware(threads, lane, number, size, waits, site, block)
            else:
                arrives, waits, site = rest
                self.mbarrier(threads, lane, number, arrives, waits and waits + later.get(number, 0), site)

    def _add(self, warp: int, event: Event) -> None:
        self.events.setdefault(warp, deque()).append(event)

    def stuck(self) -> list[Event]:
        """The waits at which warps remain for ever."""
        came: dict[Any, int] = {}
        queues = {warp: deque(events) for warp, events in self.events.items()}
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
        return [*waiting.values(), *self._nobody_waits(came)]

    def _nobody_waits(self, came: dict[Any, int]) -> list[Event]:
        """Arrivals at hardware barriers in rounds that are not complete."""
        found = {e.barrier: e for events in self.events.values() for e in events if e.barrier[0] == "hardware"}
        return [event for barrier, event in found.items() if came.get(barrier, 0) % self.sizes[barrier[1]]]


def _warps(threads: Array, lane: Array) -> list[tuple[int, int]]:
    """(warp, how many of its lanes)."""
    mine = lane[threads] // WARP
    return [(int(w), int((mine == w).sum())) for w in sorted(set(mine.tolist()))]
