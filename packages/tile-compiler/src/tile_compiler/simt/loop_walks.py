"""The checker's walk through loops: until their states repeat; and out of them, by threads together or apart."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tile_compiler.simt.block_memory import ADDRESS, buffer_at
from tile_compiler.simt.checker.refutations import apart
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.held_state import HeldState
from tile_compiler.simt.operators.nests import REGISTERS
from tile_compiler.simt.recall import Recall
from tile_compiler.simt.repetition import Repetition
from tile_compiler.simt.shadow import Shadow
from tile_compiler.simt.statement_tree import BLOCK_BARRIERS
from tile_compiler.simt.thread_values import Array, Known, Unknown
from tilelang.ir import tile_ir

LONGEST = 512  # iterations of a loop without repetition that are walked; the report says where that was not all
MOST_TRIPS = (1 << 31) - 1  # of a loop of which nobody knows how often it runs
AT_ONCE = 1 << 15  # iterations times threads that are evaluated together


@dataclass
class _Ways:
    """States in which threads may go on at a place, and what private arrays then hold."""

    states: list[Shadow] = field(default_factory=list)
    values: list[Known] = field(default_factory=list)


@dataclass
class _Loop:
    """The loop that is being walked: by which threads, whether a barrier stands in it, what private arrays its body changes.
    `exits`: how it may be left; `again`: how its next iteration may begin beside the end of this one; `apart`: whether some
    threads may have left while others went on, and `conditions`, those around it that threads may disagree on."""

    mask: Array
    has_barrier: bool
    stored: frozenset[Any]
    conditions: int
    exits: _Ways = field(default_factory=_Ways)
    again: _Ways = field(default_factory=_Ways)
    apart: bool = False


class LoopWalks(HeldState):
    """What a walk does at loops."""

    recalls = True  # a statement that begins in a state of before is not walked again (`recall.py`)

    def __init__(
        self,
        kernel: tile_ir.Kernel,
        ctx: SimtContext,
        tracked: set[Any],
        finely: bool = False,
        exactly: bool = False,
        ranks: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(kernel, ctx, tracked, finely, ranks)
        self.tracked, self.exactly = tracked, exactly
        self.loops: list[_Loop] = []
        self.apart = 0  # conditions around here that threads may disagree on
        self.stores: dict[
            int, tuple[Any, frozenset[Any]]
        ] = {}  # by identity: the private arrays that a statement changes
        self.repetitions: dict[Any, Repetition] = {}
        self.either: set[Any] = set()
        self.barriers: dict[int, tuple[Any, bool]] = {}  # by identity: whether one stands below
        self.recall = Recall(self)

    def _statement(self, node: Any) -> None:
        """Walk a statement."""
        raise NotImplementedError

    def _in_parts(self, body: Any) -> None:
        """Statements, of which those that do again what they did are not walked again."""
        for part in self.recall.parts(body):
            self.recall.walk(part, functools.partial(self._statement, part))

    # -- leaving ----------------------------------------------------------------------------------------------

    def _leave(self, node: Any) -> None:
        """A `break`: the state goes to the loop's end; or a `continue`: to its next iteration."""
        if not self.loops:
            return
        loop = self.loops[-1]
        ways = loop.again if is_call(node.value, "tirx.continue_loop") else loop.exits
        some = self.apart > loop.conditions or not np.array_equal(self.mask, loop.mask)
        if some and loop.has_barrier:
            raise apart("in a loop that threads may leave apart", node.span)
        assert self.state is not None
        ways.states.append(self.state.copy() if some else self.state)
        ways.values.append(self.known())
        loop.apart |= some
        if not some:
            self.state = None

    def _enter(self, node: Any) -> None:
        """A loop begins."""
        self.loops.append(_Loop(self.mask, self._has_barrier(node), self._stores(node), self.apart))

    def _next(self) -> None:
        """An iteration is over, also for those who cut it short."""
        loop = self.loops[-1] if self.loops else None
        if loop is not None and loop.again.states:
            ways, loop.again = loop.again, _Ways()
            self._go_on(ways, loop)

    def _end(self) -> None:
        """A loop is over, also for those who left it."""
        loop = self.loops.pop()
        self._go_on(loop.exits, loop)

    def _go_on(self, ways: _Ways, loop: _Loop) -> None:
        values = list(ways.values)
        if self.state is None and values:
            self.known_as(values.pop(0))
        for known in values:
            self.or_else(known, loop.stored, loop.apart)
        self._joined(ways.states)

    def _stores(self, node: Any) -> frozenset[Any]:
        """The private arrays that a statement changes, or a function that it gives them to, of those that are followed."""
        if hash(node) not in self.stores:
            nodes = list(tile_ir.walk(node, tir.BufferStore, ir.Call))
            found = [buffer_at(n) if is_call(n, *ADDRESS) else getattr(n, "buffer", None) for n in nodes]
            self.stores[hash(node)] = node, frozenset(b for b in found if b in self.followed)
        return self.stores[hash(node)][1]

    # -- loops ------------------------------------------------------------------------------------------------

    def _for(self, node: Any) -> None:
        if self._is_quiet(node):
            return
        of_registers = bool(node.annotations) and REGISTERS in node.annotations
        self.nest += of_registers and not self.depth
        self.depth += of_registers
        self._loop(node)
        self.depth -= of_registers

    def _loop(self, node: Any) -> None:
        self._reads(node.extent, node)
        try:
            low, extent = self.value(node.min), self.value(node.extent)
        except Unknown as unknown:
            self._unknown_for(node, unknown.varying)
            return
        if len(extent) == len(low) == 1 and (self._only_reads(node) or (self.depth and self._in_any_order(node))):
            self._at_once(node, int(low[0]), int(extent[0]))
            return
        if node.kind == tir.ForKind.UNROLLED or len(extent) > 1 or len(low) > 1:
            self._unrolled(node, low, extent)
            return
        self._repeated(node, int(low[0]), int(extent[0]), self._repetition(node))

    def _has_barrier(self, node: Any) -> bool:
        if hash(node) not in self.barriers:
            calls = (str(n.args[0].value) for n in tile_ir.walk(node, ir.Call) if is_call(n, "tirx.call_extern"))
            found = any(name in BLOCK_BARRIERS or "sync_threads" in name for name in calls)
            self.barriers[hash(node)] = node, found
        return self.barriers[hash(node)][1]

    def _repetition(self, node: Any) -> Repetition:
        found = self.repetitions.get(node)
        if found is None:
            found = Repetition(node, self._is_quiet, self.followed, self.tracked, self.exactly)
            self.repetitions[node] = found
            self.either.update(found.either)
        return found

    def _at_once(self, node: Any, low: int, extent: int) -> None:
        """A loop whose iterations meet of each other whatever their order is, or nothing: many are evaluated together."""
        step = max(1, AT_ONCE // self.threads)
        for first in range(0, extent, step):
            with self.all_iterations(node.loop_var, low + np.arange(first, min(first + step, extent))):
                self._statement(node.body)

    def _unrolled(self, node: Any, low: Array, extent: Array) -> None:
        """Every iteration; threads may have numbers of their own."""
        outer = self.mask
        self._enter(node)
        for number in range(int(extent.max(initial=0))):
            self.mask = outer & (number < extent)
            self._iteration(node, low + number)
        self.mask = outer
        self._end()

    def _iteration(self, node: Any, value: Any) -> None:
        if not self.ends_here:
            self.values[node.loop_var] = np.asarray(value)
            self._statement(node.body)
            self._next()

    def _repeated(self, node: Any, low: int, extent: int, repetition: Repetition) -> None:
        """Iterations until the state repeats, then those after the last full turn: see `repetition`."""
        self._enter(node)
        seen: list[tuple[int, int]] = []  # (key of the state, hash of the trace) before and in each iteration
        number, walked = 0, 0
        while number < extent and not self.ends_here:
            if walked == LONGEST:
                text = f"iterations {number} to {extent} of a loop do as those before (walked: {LONGEST})"
                self.ctx.report.assume(node.span, text)
                break
            key = self._key(self.key(), repetition.counters)
            before = {b: self.private[b].copy() for b in repetition.counters if b in self.private}
            outer_trace, self.trace = self.trace, []
            self.values[node.loop_var] = np.asarray([low + number])
            if repetition.regular:
                self.recall.walk(node.body, functools.partial(self._statement, node.body))
            else:
                self._in_parts(node.body)
            self._next()
            self.trace, trace = outer_trace, hash(tuple(self.trace))
            outer_trace.append(trace)
            seen.append((key, trace))
            number, walked = number + 1, walked + 1
            skip = repetition.skip(seen, number, extent, low, self)
            if skip:
                repetition.advance(self, before, skip)
                number += skip
                seen = []
        self._end()

    def _key(self, state: int, counters: Collection[Any]) -> int:
        private = tuple(v.tobytes() for b, v in self.private.items() if b not in counters)
        return hash((state, private, tuple(sorted(map(hash, self.unknown.items())))))

    def _unknown_for(self, node: Any, varying: bool) -> None:
        """A trip count that memory decides: left after any number of iterations, until nothing new happens."""
        if varying and self._has_barrier(node):
            raise apart("in a loop that threads may leave apart", node.span)
        try:
            low = self.value(node.min)
        except Unknown:
            low = np.asarray([0])
        repetition = self._repetition(node) if len(low) == 1 else None
        self._until_fixed(node, lambda number: self._iteration(node, low + number), varying, int(low[0]), repetition)

    def _until_fixed(
        self, node: Any, iteration: Any, varying: bool, low: int = 0, repetition: Repetition | None = None
    ) -> None:
        """Iterations, after each of which the loop may be left, `varying`: by some threads, until nothing new happens.

        The states before them repeat (`repetition`: in step with the loop's variable; without one, iterations do as their
        states say), or the loop may be left in no other state than those until then.
        """
        assert self.state is not None
        self._enter(node)
        self.loops[-1].exits, self.loops[-1].apart = _Ways([self.state.copy()], [self.known()]), varying
        counters: Collection[Any] = () if repetition is None else repetition.counters
        seen: list[tuple[int, int]] = []
        last = None
        self.undecided += 1
        versions = 1 + max((int(b) for b in _moduli(node)), default=1)
        number, walked = 0, 0
        while number < MOST_TRIPS and not self.ends_here:
            if walked == LONGEST:
                self.ctx.report.assume(node.span, f"a loop does as in its first {LONGEST} iterations")
                break
            key = self._key(self.key(), counters)
            if repetition is None and any(key == k for k, _ in seen):
                break
            before = {b: self.private[b].copy() for b in counters if b in self.private}
            outer_trace, self.trace = self.trace, []
            iteration(number)
            self.trace, trace = outer_trace, hash(tuple(self.trace))
            outer_trace.append(trace)
            seen.append((key, trace))
            number, walked = number + 1, walked + 1
            if self.ends_here:
                break
            joined = self._left_so_far()
            if walked > versions and joined == last:
                break
            last = joined
            skip = 0 if repetition is None else repetition.skip(seen, number, MOST_TRIPS, low, self)
            if repetition is not None and skip:
                repetition.advance(self, before, skip)
                number += skip
                seen = []
        self.undecided -= 1
        self.state = None
        self._end()

    def _left_so_far(self) -> int:
        """The key of all states in which the loop may be left, of which the present one is one; they become one."""
        assert self.state is not None
        loop, now = self.loops[-1], self.known()
        exits = [*loop.exits.states, self.state.copy()]
        for other in exits[1:]:
            exits[0].merge(other)
        for known in loop.exits.values:
            self.or_else(known, loop.stored, loop.apart)
        loop.exits = _Ways(exits[:1], [self.known()])
        self.known_as(now)
        return exits[0].key()

    def _joined(self, exits: list[Shadow]) -> None:
        """The state after a loop that may also have been left in these states."""
        for other in exits:
            if self.state is None:
                self.state = other
            else:
                self.state.merge(other)

    def _while(self, node: Any) -> None:
        outer = self.mask
        self._reads(node.condition, node)
        varying: bool | None = None  # known
        try:
            self.value(node.condition)
        except Unknown as unknown:
            varying = unknown.varying
            if varying and self._has_barrier(node):
                raise apart("in a loop that threads may leave apart", node.span) from None
        if varying is not None:

            def turn(_: int) -> None:
                self._statement(node.body)
                self._next()
                if not self.ends_here:
                    self._reads(node.condition, node)

            self._until_fixed(node, turn, varying)
            return
        self._enter(node)
        for _ in range(LONGEST):
            try:
                condition = np.broadcast_to(self.value(node.condition), (self.threads,)).astype(bool)
            except Unknown as unknown:
                condition = np.zeros(self.threads, bool)
                self.ctx.report.assume(node.span, f"a loop does as before (varying: {unknown.varying})")
                self.unknown.update(dict.fromkeys(self._stores(node), unknown.varying))
            self.mask = self.mask & condition
            if not self.mask.any() or self.ends_here:
                break
            self._statement(node.body)
            self._next()
            if not self.ends_here:
                self._reads(node.condition, node)
        self.mask = outer
        self._end()


def _moduli(node: Any) -> list[int]:
    """The constants that something below is taken modulo of."""
    found = [n.b for n in tile_ir.walk(node) if type(n).__name__ == "FloorMod"]
    return [int(b.value) for b in found if isinstance(b, tir.IntImm) and 0 < b.value <= 64]
