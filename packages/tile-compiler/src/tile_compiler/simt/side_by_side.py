"""Kernels with `T.ws`, whose warpgroups have programs of their own: the walk of each, beside those of the others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from tvm import tirx as tir

from tile_compiler.simt.block_memory import REGISTER_LIMIT, Memory
from tile_compiler.simt.checker.asynchronous import distinct
from tile_compiler.simt.checker.engines import Engines
from tile_compiler.simt.checker.knowledge import Clock
from tile_compiler.simt.checker.mbarriers import Mbarrier
from tile_compiler.simt.checker.products import WARPGROUP
from tile_compiler.simt.checker.refutations import mismatch, stuck_warps
from tile_compiler.simt.checker.replay import WHOLE
from tile_compiler.simt.checker.turns import Stuck, Turns
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.enumeration import Block
from tile_compiler.simt.errors import BarrierMismatch
from tile_compiler.simt.loop_walks import LONGEST
from tile_compiler.simt.repetition import Repetition
from tile_compiler.simt.shadow import Shadow
from tile_compiler.simt.thread_values import Array, Unknown
from tilelang.ir import tile_ir

REGISTERS = 1 << 16  # of a multiprocessor
_OWN = ("mask", "mine", "values", "private", "unknown", "loops", "span", "depth", "nest", "undecided", "apart")


class NotFollowed(Exception):
    """A program does what its walk beside others cannot follow."""


def has_programs(kernel: tile_ir.Kernel) -> bool:
    """Whether warpgroups of a kernel have work of their own."""
    return any(tile_ir.as_thread_group(n) is not None for n in tile_ir.walk(kernel.body, tir.AttrStmt))


@dataclass
class _Round:
    """Who has come to a hardware barrier since it last let threads pass; what each time they handed over."""

    came: Array
    clock: Clock
    over: list[Clock] = field(default_factory=list)


class SideBySide(Block):
    """Each set of threads that take part in the same programs walks the whole kernel; they share one state.

    One walk goes on until it waits for a phase that has not ended, or at a barrier for others, then another goes on. What
    is proved of the order that comes about holds for all that the waits allow, as the clocks know of no other order. If
    none can go on, warps wait for ever: what each does to barriers does not depend on the order, and phases that have
    ended stay ended.

    Of a loop the first iterations are walked, and the last: `period` is what the tiles and parities of all loops repeat
    with. That those between do as they do is assumed; `wholly` walks them too. A trip count that memory decides is taken
    for one that shows every version twice.
    """

    recalls = False  # others go on while a walk waits, which the state that it begins in does not tell

    def __init__(
        self,
        kernel: tile_ir.Kernel,
        ctx: SimtContext,
        tracked: set[Any],
        finely: bool = False,
        wholly: bool = False,
        backwards: bool = False,
    ) -> None:
        super().__init__(kernel, ctx, tracked, finely, exactly=True)
        if self.produces or self.lanes.blocks > 1:
            raise NotFollowed
        self.is_asynchronous = True  # clocks tell who knows of whom
        self.wholly, self.skipped, self.backwards = wholly, False, backwards
        self.guessed: set[str] = set()  # trip counts that memory decides
        self.period = self._period()
        self.mine, self.at_start = self.consumers, dict(self.values)
        self.turns = Turns()
        self.rounds: dict[Any, _Round] = {}
        self.limits, self.free = self._registers()

    def _period(self) -> int:
        loops = [n for n in tile_ir.walk(self.kernel.body, tir.For) if n.kind == tir.ForKind.SERIAL]
        found = [Repetition(n, self._is_quiet, self.followed, self.tracked, True).moduli for n in loops]
        return math.lcm(2, *(m for moduli in found for m in moduli))

    # -- programs -----------------------------------------------------------------------------------------------

    def _walk(self, body: Any) -> None:
        assert self.state is not None
        self.turns, self.rounds, self.guessed = Turns(), {}, set()
        self.limits, self.free = self._registers()
        self.at_start = dict(self.values)
        try:
            self.turns.run([partial(self._program, body, threads) for threads in self._sets()])
        except Stuck as stuck:
            if self.trusted or len(self.guessed) > 1:
                raise NotFollowed from None
            raise self._stuck(stuck.waits) from None
        except BarrierMismatch:
            if len(self.guessed) > 1:  # they may be different numbers
                raise NotFollowed from None
            raise

    def _sets(self) -> list[Array]:
        """Threads by the groups that they belong to, in the order of their first ones, or `backwards`."""
        groups = {tile_ir.as_thread_group(n) for n in tile_ir.walk(self.kernel.body, tir.AttrStmt)} - {None}
        belongs = np.stack([(self.lane >= g[0]) & (self.lane < g[0] + g[1]) for g in groups if g is not None])
        found = [(belongs == one[:, None]).all(axis=0) for one in np.unique(belongs, axis=1).T]
        return sorted(found, key=lambda threads: int(threads.argmax()), reverse=self.backwards)

    def _program(self, body: Any, threads: Array) -> None:
        assert self.state is not None
        assert self.state.engines is not None
        self.mask = self.mine = threads
        self.values, self.private, self.unknown = dict(self.at_start), {}, {}
        self.loops, self.span, self.depth, self.nest, self.undecided, self.apart = [], self.kernel.span, 0, 0, 0, 0
        self.state.groups, self.state.open = [], []
        self.state.engines.touched = dict.fromkeys(self.registers, -1)
        self._statement(body)

    def _until(self, condition: Callable[[], bool], at: Any) -> None:
        """Others go on until the condition holds; what is this walk's own stays as it is."""
        if condition():
            return
        if self.undecided:
            raise NotFollowed
        own = {name: vars(self)[name] for name in _OWN}
        groups, last, touched = self._now.groups, self._now.open, self._engines_now.touched
        self.turns.wait(condition, at)
        vars(self).update(own)
        self._now.groups, self._now.open, self._engines_now.touched = groups, last, touched

    @property
    def _now(self) -> Shadow:
        assert self.state is not None
        return self.state

    @property
    def _engines_now(self) -> Engines:
        assert self._now.engines is not None
        return self._now.engines

    def _stuck(self, waits: list[tuple[int | None, Any]]) -> Exception:
        registers = [stmt for number, stmt in waits if number is None and REGISTER_LIMIT in str(stmt)]
        for number, stmt in waits:
            if number is not None and not registers:
                here = self.sites[self._site(stmt)]
                return mismatch("never", self._engines_now.barriers[number], self.sites, here, {})
        return stuck_warps([self.sites[self._site(stmt)] for _, stmt in waits])

    # -- barriers -----------------------------------------------------------------------------------------------

    def _all_reach(self, node: Any, together: bool = False) -> Array:
        return super()._all_reach(node, together) if (self.mine & ~self.active).any() else self.consumers

    def _barrier(self, threads: Array, site: int) -> None:
        self._meet(WHOLE, self.count, self.active, self.sites[site].stmt, waits=True)

    def _barrier_of_part(self, name: str, node: Any) -> None:
        number, size = map(int, name[name.index("<") + 1 : name.index(">")].split(","))
        self._meet(number, size, self.active, node, waits=True)

    def _take_turns(self, node: Any, stmt: Any, threads: Array, waits: bool) -> None:
        try:
            number, size = self._value_of(node.args[1]), int(self.value(node.args[2])[0])
        except Unknown:
            raise NotFollowed from None
        for which in distinct(number[threads]):
            self._meet(which, size, threads & (number == which), stmt, waits)

    def _meet(self, barrier: int, size: int, who: Array, stmt: Any, waits: bool) -> None:
        """Threads come to a barrier of the hardware, at which `size` threads meet."""
        knowledge = self._engines_now.knowledge
        self.now += 1
        fresh = np.zeros(self._engines_now.agents.count, np.int32)
        here = self.rounds.setdefault(barrier, _Round(np.zeros(self.threads, bool), fresh))
        if (here.came & who).any():
            raise NotFollowed  # some threads come twice to the barrier, others not yet
        number = len(here.over)
        here.came |= who
        here.clock = np.maximum(here.clock, knowledge.released(who, self.now))
        if here.came.sum() >= size:
            here.over.append(here.clock)
            here.came, here.clock = np.zeros(self.threads, bool), fresh
            if barrier == WHOLE:
                self._now.barrier()
        if waits:
            self._until(lambda: len(here.over) > number, (None, stmt))
            self._engines_now.knowledge.acquire(who, here.over[number])

    def _wait(self, barrier: Mbarrier, who: Array, parity: Array, stmt: Any, engines: Engines, refute: Any) -> None:
        for value in distinct(parity[who]):
            number, these = barrier.number, who & (parity == value)
            self._until(partial(self._passes, number, value), (number, stmt))
            engines = self._engines_now
            if self.trusted:
                engines.knowledge.acquire(these, np.full(engines.agents.count, self.now, np.int32))
            else:
                engines.barriers[number].wait(these, value, self.now, engines.knowledge, refute)

    def _passes(self, number: int, parity: int) -> bool:
        """Whether a wait for the phase of this parity ends. Too many bytes never do: there it goes on, to say so."""
        barrier = self._engines_now.barriers[number]
        return self.trusted or barrier.ended is None or barrier.ended % 2 != parity or barrier.outstanding < 0

    def _registers(self) -> tuple[dict[int, int], int]:
        """(how many registers each thread of a warpgroup may use, how many are free for one more)."""
        share = REGISTERS // self.count // 8 * 8
        return dict.fromkeys(range(-(-self.count // WARPGROUP)), share), 0

    def _extern(self, node: Any, stmt: Any) -> None:
        name = str(node.args[0].value)
        super()._extern(node, stmt)
        for group in self._warpgroups(self.active) if name.startswith(REGISTER_LIMIT) else ():
            more = int(name[name.index("<") + 1 : -1]) - self.limits[group]
            self._until(partial(self._are_free, more), (None, stmt))
            self.limits[group] += more
            self.free -= more

    def _are_free(self, count: int) -> bool:
        return count <= max(0, self.free)

    # -- loops --------------------------------------------------------------------------------------------------

    def _repeated(self, node: Any, low: int, extent: int, repetition: Repetition) -> None:
        number, walked, first = 0, 0, self.period
        while number < extent:
            if walked == LONGEST:
                raise NotFollowed
            before = {b: self.private[b].copy() for b in repetition.counters if b in self.private}
            self._iteration(node, np.asarray([low + number]))
            number, walked = number + 1, walked + 1
            skip = (extent - number) // self.period * self.period - self.period
            if walked == first and skip > 0 and not self.wholly:
                repetition.advance(self, before, skip)
                text = f"iterations {number} to {number + skip} of a loop of warpgroups with programs of their own do as others"
                self.ctx.report.assume(node.span, text)
                self.skipped = True
                number += skip

    def _unknown_for(self, node: Any, varying: bool) -> None:
        if varying:
            raise NotFollowed
        self.guessed.add(str(node.extent))
        for number in range(2 * self.period):
            self._iteration(node, np.asarray([number]))

    def _until_fixed(
        self, node: Any, iteration: Any, varying: bool, low: int = 0, repetition: Repetition | None = None
    ) -> None:
        raise NotFollowed

    def _leave(self, node: Any) -> None:
        raise NotFollowed

    # -- accesses -----------------------------------------------------------------------------------------------

    def _places(
        self, memory: Memory, indices: Any, count: int, step: int = 0, block: Array | None = None
    ) -> tuple[Array, Array, bool]:
        place, thread, known = super()._places(memory, indices, count, step, block)
        if not known:
            raise NotFollowed  # it stands for accesses of all threads of the block
        return place, thread, known
