"""All threads of one block, walking the final form and leaving traces in the memory they share; used by the checker."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call
from tile_compiler.simt.block_memory import is_role
from tile_compiler.simt.checker.asynchronous import distinct
from tile_compiler.simt.checker.knowledge import WARP
from tile_compiler.simt.checker.replay import WHOLE
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.errors import SharedMemoryRace
from tile_compiler.simt.held_state import HeldState
from tile_compiler.simt.operators.nests import REGISTERS
from tile_compiler.simt.recall import Recall
from tile_compiler.simt.repetition import Repetition
from tile_compiler.simt.shadow import Flight, Shadow
from tile_compiler.simt.statement_tree import BLOCK_BARRIERS
from tile_compiler.simt.thread_values import Array, Unknown
from tilelang.ir import tile_ir

LONGEST = 512  # iterations of a loop without repetition that are walked; the report says where that was not all
MOST_TRIPS = (1 << 31) - 1  # of a loop of which nobody knows how often it runs
AT_ONCE = 1 << 15  # iterations times threads that are evaluated together


@dataclass
class _Loop:
    """The loop that is being walked: states at which it may be left; whether a barrier stands in it."""

    exits: list[Shadow]
    has_barrier: bool


class Block(HeldState):
    """Walks of one kernel, with sizes and block coordinates as given; each raises for what it finds.

    A condition that memory decides, and all threads agree
    on, is taken both ways, and the two states are merged; where threads may disagree, each may do either. So is a
    condition whose ways do not repeat from iteration to iteration (`Repetition.either`), unless `exactly` is set.
    """

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
        self.repetitions: dict[Any, Repetition] = {}
        self.either: set[Any] = set()
        self.barriers: dict[int, tuple[Any, bool]] = {}  # by identity: whether one stands below
        self.sequences: dict[int, tuple[Any, list[Any]]] = {}
        self.recall = Recall(self)

    def run(self, chosen: dict[Any, Any], host: list[Any]) -> None:
        """Walk the kernel from its beginning to its end, after the Binds of the `host`."""
        self.values, self.private, self.unknown = dict(chosen), {}, {}
        for axis, ((var, _), size) in enumerate(zip(self.kernel.grid, self.lanes.dims)):
            if size > 1:
                self.values[var] = self.values[var] // size * size + self.lanes.offset(axis)
        rest = self.lanes.number
        for var, extent in self.kernel.threads[:-1]:
            self.values[var] = rest % int(extent)
            rest = rest // int(extent)
        for var, _ in self.kernel.threads[-1:]:
            self.values[var] = rest
        self.mask = np.ones(self.threads, bool)
        self._maps(host)
        self.state, self.loops, self.trace = Shadow(self.shared_places, self._engines()), [], []
        for stmt in host:
            self._statement(stmt)
        self._walk(self.kernel.body)
        self._at_exit()

    def _walk(self, body: Any) -> None:
        self._statement(body)

    # -- statements -------------------------------------------------------------------------------------------

    def _statement(self, node: Any) -> None:
        method = _STATEMENTS.get(type(node).__name__)
        if method is not None and not self.ends_here:
            if self.registers and type(node).__name__ in _WHOLE:
                if type(node).__name__ != "For" or self._is_quiet(node):
                    self._use_registers(node)
            method(self, node)

    def _sequence(self, node: Any) -> None:
        if self.recalls and self.is_asynchronous and self.recall.has_loops(node):
            self._in_parts(node)
            return
        if hash(node) not in self.sequences:
            self.sequences[hash(node)] = node, list(node.seq)
        for part in self.sequences[hash(node)][1]:
            self._statement(part)

    def _in_parts(self, body: Any) -> None:
        """Statements, of which those that do again what they did are not walked again."""
        for part in self.recall.parts(body):
            self.recall.walk(part, functools.partial(self._statement, part))

    def _scope(self, node: Any) -> None:
        outer = self.producing, self.span
        self.producing, self.span = self.producing or is_role(node), node.span or self.span
        self._statement(node.body)
        self.producing, self.span = outer

    def _alloc(self, node: Any) -> None:
        self.follow(node.buffer)

    def _bind(self, node: Any) -> None:
        try:
            self.values[node.var] = self.value(node.value)
        except Unknown as unknown:
            self.values[node.var] = unknown
        self._reads(node.value, node)

    def _store(self, node: Any) -> None:
        self._reads(node.value, node)
        for index in node.indices:
            self._reads(index, node)
        self.keep(node.buffer, node.indices[0], node.value)
        memory = self.memories.get(node.buffer)
        if memory is not None:
            self._touch("write", memory, node.indices, 1, node, self._same(node.value))

    def _same(self, value: Any) -> bool:
        """Whether all threads have this value, in each of the iterations that are evaluated together."""
        try:
            found = self.value(value)
            if len(found) == 1 or self.threads == self.lanes.total:
                return len(found) == 1
            table = found.reshape(-1, self.lanes.total)
            return bool((table == table[:, :1]).all())
        except Unknown as unknown:
            return not unknown.varying

    def _evaluate(self, node: Any) -> None:
        assert self.state is not None
        call = node.value
        name = str(call.args[0].value) if is_call(call, "tirx.call_extern") else ""
        if name.startswith("tl::sync_threads") and not self.active.any():
            return
        if name in ("tl::sync_threads", "tl::sync_grid") or (name == "tl::cluster_sync" and self.lanes.blocks == 1):
            self._barrier(self._all_reach(node) | (node in self.joint), self._site(node))
        elif name.startswith("tl::sync_threads<"):
            self._barrier_of_part(name, node)
        elif name == "tl::cp_async_commit":
            self.state.commit()
        elif name.startswith("tl::cp_async_wait<"):
            self._landed(self.state.wait(int(name[18:-1])))
        elif name.startswith("tl::wait_loads<"):
            self._landed(self.state.wait_loads(int(name[15:-1])))
        elif is_call(call, "tirx.break_loop", "tirx.continue_loop"):
            self._leave(node)
        else:
            self._reads(call, node)

    def _all_reach(self, node: Any, together: bool = False) -> Array:
        """The threads that come to a barrier: all that are walked (`together`), or all of a block and none of another."""
        active = self.active
        blocks = range(self.lanes.blocks) if together else distinct(self.lanes.block[active])
        meant = self.consumers & np.isin(self.lanes.block, blocks)
        if (meant & ~active).any():
            raise SharedMemoryRace("a barrier that not every thread reaches", at=node.span)
        return np.asarray(meant)

    def _barrier(self, threads: Array, site: int) -> None:
        """All threads of a block meet, or all but the producer; and so in each block of a cluster."""
        assert self.state is not None
        blocks = distinct(self.lanes.block[threads])
        if len(blocks) == self.lanes.blocks:
            self.state.barrier()
        else:
            for block in blocks:
                self.state.barrier(slice(block * self.span_places, (block + 1) * self.span_places))
        if self.state.engines is not None:
            self.now += 1
            size = -(-self.count // WARP) * WARP
            for block in blocks:
                here = self.lanes.block == block
                self.state.engines.knowledge.join(threads & here, self.now)
                self.replay.hardware(self.consumers & here, self.lane, WHOLE, size, True, site, block)

    def _barrier_of_part(self, name: str, node: Any) -> None:
        """A barrier of some threads: the others are assumed not to matter to them."""
        self.ctx.report.assume(node.span, "a barrier of a part of the block orders what it is meant to order")
        self._barrier(self.consumers, self._site(node))

    def _landed(self, flights: list[Flight]) -> None:
        """What `cp.async` has brought counts as written by the threads that waited for it."""
        assert self.state is not None
        engines = self.state.engines
        for flight in flights if engines is not None else ():
            assert engines is not None
            self.now += 1
            engines.record("write", flight.place, flight.thread, self.now, flight.site)

    def _leave(self, node: Any) -> None:
        """A `break` or `continue`: the state goes to the loop's end."""
        if not self.loops:
            return
        if self.mask.all():
            self.loops[-1].exits.append(self.state)  # type: ignore[arg-type] # not None: it got here
            self.state = None
        elif self.loops[-1].has_barrier:
            raise SharedMemoryRace("a barrier in a loop that threads may leave apart", at=node.span)

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
        self.loops.append(_Loop([], self._has_barrier(node)))
        for number in range(int(extent.max(initial=0))):
            self.mask = outer & (number < extent)
            self._iteration(node, low + number)
        self.mask = outer
        self._joined(self.loops.pop().exits)

    def _iteration(self, node: Any, value: Any) -> None:
        if not self.ends_here:
            self.values[node.loop_var] = np.asarray(value)
            self._statement(node.body)

    def _repeated(self, node: Any, low: int, extent: int, repetition: Repetition) -> None:
        """Iterations until the state repeats, then those after the last full turn: see `repetition`."""
        self.loops.append(_Loop([], True))
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
            self.trace, trace = outer_trace, hash(tuple(self.trace))
            outer_trace.append(trace)
            seen.append((key, trace))
            number, walked = number + 1, walked + 1
            skip = repetition.skip(seen, number, extent, low, self)
            if skip:
                repetition.advance(self, before, skip)
                number += skip
                seen = []
        self._joined(self.loops.pop().exits)

    def _key(self, state: int, counters: Collection[Any]) -> int:
        private = tuple(v.tobytes() for b, v in self.private.items() if b not in counters)
        return hash((state, private, tuple(sorted(map(hash, self.unknown.items())))))

    def _unknown_for(self, node: Any, varying: bool) -> None:
        """A trip count that memory decides: left after any number of iterations, until nothing new happens."""
        if varying and self._has_barrier(node):
            raise SharedMemoryRace("a barrier in a loop that threads may leave apart", at=node.span)
        try:
            low = self.value(node.min)
        except Unknown:
            low = np.asarray([0])
        repetition = self._repetition(node) if len(low) == 1 else None
        self._until_fixed(node, lambda number: self._iteration(node, low + number), int(low[0]), repetition)

    def _until_fixed(self, node: Any, iteration: Any, low: int = 0, repetition: Repetition | None = None) -> None:
        """Iterations, after each of which the loop may be left, until nothing new happens.

        The states before them repeat (`repetition`: in step with the loop's variable; without one, iterations do as their
        states say), or the loop may be left in no other state than those until then.
        """
        assert self.state is not None
        self.loops.append(_Loop([self.state.copy()], True))
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
        self._joined(self.loops.pop().exits)

    def _left_so_far(self) -> int:
        """The key of all states in which the loop may be left, of which the present one is one; they become one."""
        assert self.state is not None
        exits = [*self.loops[-1].exits, self.state.copy()]
        for other in exits[1:]:
            exits[0].merge(other)
        self.loops[-1].exits = exits[:1]
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
        known = True
        try:
            self.value(node.condition)
        except Unknown as unknown:
            known = False
            if unknown.varying and self._has_barrier(node):
                raise SharedMemoryRace("a barrier in a loop that threads may leave apart", at=node.span) from None
        if not known:

            def turn(_: int) -> None:
                self._statement(node.body)
                if not self.ends_here:
                    self._reads(node.condition, node)

            self._until_fixed(node, turn)
            return
        self.loops.append(_Loop([], self._has_barrier(node)))
        for _ in range(LONGEST):
            try:
                condition = np.broadcast_to(self.value(node.condition), (self.threads,)).astype(bool)
            except Unknown as unknown:
                condition = np.zeros(self.threads, bool)
                self.ctx.report.assume(node.span, f"a loop does as before (varying: {unknown.varying})")
            self.mask = self.mask & condition
            if not self.mask.any() or self.ends_here:
                break
            self._statement(node.body)
            if not self.ends_here:
                self._reads(node.condition, node)
        self.mask = outer
        self._joined(self.loops.pop().exits)

    def _branch(self, node: Any) -> None:
        if self.recall.has_loops(node, unrolled=True):
            self.recall.walk(node, functools.partial(self._if, node))
        else:
            self._if(node)

    def _if(self, node: Any) -> None:
        self._reads(node.condition, node)
        if self._is_quiet(node) and not any(self._registers_in(node)):
            return
        outer = self.mask
        try:
            value = self.value(node.condition)
            if node in self.either:
                raise Unknown(np.size(value) > 1)
        except Unknown as unknown:
            if not unknown.varying:
                self._either(node)
                return
            if self._has_barrier(node):
                raise SharedMemoryRace(
                    "a barrier under a condition that threads may disagree on", at=node.span
                ) from None
            cases = (outer, outer)  # any thread may go either way
        else:
            condition = np.broadcast_to(value, (self.threads,)).astype(bool)
            cases = (outer & condition, outer & ~condition)
        for mask, case in zip(cases, (node.then_case, node.else_case)):
            if case is not None and mask.any():
                self.mask = mask
                self._statement(case)
        self.mask = outer

    def _either(self, node: Any) -> None:
        """A condition that memory decides for all threads alike: both ways, then what either may have left."""
        assert self.state is not None
        before, private = self.state.copy(), {b: v.copy() for b, v in self.private.items()}
        self.undecided += 1
        self._statement(node.then_case)
        after, self.state = self.state, before
        if node.else_case is not None:
            changed = self.private
            self.private = private
            self._statement(node.else_case)
            private = self.private
            self.private = changed
        self.undecided -= 1
        for buffer, content in private.items():
            if not np.array_equal(content, self.private[buffer]):
                self.unknown[buffer] = True
        if after is not None:
            self._joined([after])


def _moduli(node: Any) -> list[int]:
    """The constants that something below is taken modulo of."""
    found = [n.b for n in tile_ir.walk(node) if type(n).__name__ == "FloorMod"]
    return [int(b.value) for b in found if isinstance(b, tir.IntImm) and 0 < b.value <= 64]


_WHOLE = ("BufferStore", "Evaluate", "Bind", "For")  # statements whose use of registers is looked at as one
_STATEMENTS: dict[str, Any] = {
    "SeqStmt": Block._sequence,
    "AttrStmt": Block._scope,
    "AllocBuffer": Block._alloc,
    "Bind": Block._bind,
    "BufferStore": Block._store,
    "Evaluate": Block._evaluate,
    "For": Block._for,
    "While": Block._while,
    "IfThenElse": Block._branch,
}
