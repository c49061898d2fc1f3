"""How threads and blocks wait for each other: barriers in shared memory, and barriers between blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.interpreter.barriers import Barrier
from tilelang.interpreter.companies import Company
from tilelang.interpreter.expressions import Evaluator
from tilelang.interpreter.lanes import Lanes
from tilelang.interpreter.numerics import Values
from tilelang.interpreter.teams import Deadlock, Turns


class Synchronization(Evaluator):
    """A block that arrives at barriers and waits: others run meanwhile, where there are others."""

    def __init__(self, lanes: Lanes, block: tuple[int, ...] | None) -> None:
        super().__init__(lanes, block)
        self.turns: Turns | None = None  # with other groups of threads
        self._beside: Turns | None = None  # with other blocks
        self.companies: dict[str, Company] = {}  # "cluster", "grid": the blocks that this one runs with
        self._barriers: dict[Any, list[Barrier]] = {}  # of each allocation of barriers
        self._team: Values = np.ones(lanes.count, bool)  # who executes tile operators together

    def _expect_uniform_control(self, what: str) -> None:
        if not self.lanes.mask[self._team].all():
            active = np.flatnonzero(self.lanes.mask)
            raise self.error(
                f"{what} is reached by some threads only",
                found=f"{len(active)} of {self.lanes.count} threads, the first is {self.lanes.name(int(active[0]))}",
                expected="tile operators and parallel loops are executed once, by the whole block",
                repair="move it out of the condition on the thread index",
            )

    def come(self, scope: str) -> None:
        self._expect_uniform_control(f"a barrier of the {scope}")
        self.companies[scope].come(self.block or ())

    def meet(self, scope: str) -> None:
        self._expect_uniform_control(f"a barrier of the {scope}")
        company = self.companies[scope]
        if not self._until(lambda: company.complete(self.block or ())):
            raise self.error(
                f"a barrier of the {scope} that not all its blocks reach",
                found=company.describe(),
                expected="every block to come to each barrier that another one comes to",
                repair="move it out of conditions and loops that depend on the block",
            )

    def arrive(self, barrier: Any, count: int, rank: Any = None) -> None:
        for found, lanes in self._active_barriers(barrier, rank):
            if not found.arrive(count * len(lanes)):
                raise self.error(
                    f"more arrivals at {barrier.source.name} than a phase has",
                    found=found.describe(),
                    expected="as many arrivals in a phase as T.alloc_barrier says",
                    repair="T.alloc_barrier with the number of threads that arrive, or let fewer arrive",
                )

    def expect(self, barrier: Any, size: int) -> None:
        self.complete(barrier, -size)

    def complete(self, barrier: Any, size: int) -> None:
        for found, lanes in self._active_barriers(barrier):
            found.copied(size * len(lanes))

    def wait(self, barrier: Any, parity: Any) -> None:
        parities = np.broadcast_to(self.value(parity), (self.lanes.count,))
        for found, lanes in self._active_barriers(barrier):
            wanted = sorted({int(p) for p in parities[lanes]})
            if not self._passes(found, wanted):
                raise self.error(
                    f"a wait for {barrier.source.name} that never ends",
                    found=found.describe(),
                    expected="arrivals and copies that end the phase, before the wait in the order of the program",
                    repair="arrive at the barrier, or wait for the phase before: its parity is (k // stages) % 2",
                )

    def _passes(self, barrier: Barrier, parities: list[int]) -> bool:
        """Whether a wait ends, after other groups have run as far as that needs."""
        return self._until(lambda: all(barrier.passed(p) for p in parities))

    def _until(self, over: Callable[[], bool]) -> bool:
        """Whether a condition comes to hold when others run."""
        turns = self.turns or self._beside
        if over() or turns is None:
            return over()
        mask, self_lanes = self.lanes.mask, self.lanes
        try:
            turns.until(over)
        except Deadlock:
            return False
        self_lanes.mask = mask
        return True

    def _active_barriers(self, barrier: Any, rank: Any = None) -> list[tuple[Barrier, Values]]:
        """Each barrier that active lanes name, with these lanes: of this block, or of block `rank` of its cluster."""
        (place,) = barrier.region
        active = np.flatnonzero(self.lanes.mask)
        numbers = np.broadcast_to(self.value(place.min), (self.lanes.count,))[active]
        owner = np.broadcast_to(0 if rank is None else self.value(rank), (self.lanes.count,))[active]
        found = []
        for number, block in dict.fromkeys(zip(numbers.tolist(), owner.tolist())):
            barriers = self._barriers_of(barrier.source, None if rank is None else block)
            if not 0 <= number < len(barriers):
                raise self.error(f"barrier {number} of {barrier.source.name}, which has {len(barriers)}")
            found.append((barriers[number], active[(numbers == number) & (owner == block)]))
        return found

    def _barriers_of(self, allocation: Any, rank: int | None) -> list[Barrier]:
        if rank is None:
            return self._barriers[allocation]
        blocks = list(self.companies["cluster"].blocks.values())
        if not 0 <= rank < len(blocks):
            raise self.error(f"block {rank} of a cluster, which has {len(blocks)}")
        self._until(lambda: allocation in blocks[rank]._barriers)
        return blocks[rank]._barriers[allocation]
