"""All threads of one block, walking the final form and leaving traces in the memory they share; used by the checker."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from tile_compiler.rewrite import is_call
from tile_compiler.simt.block_memory import Memory, is_role
from tile_compiler.simt.checker.asynchronous import distinct
from tile_compiler.simt.checker.knowledge import WARP
from tile_compiler.simt.checker.refutations import apart
from tile_compiler.simt.checker.replay import WHOLE
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.loop_walks import LoopWalks
from tile_compiler.simt.shadow import Flight, Shadow
from tile_compiler.simt.thread_values import Array, Unknown
from tilelang.ir import tile_ir


class Block(LoopWalks):
    """Walks of one kernel, with sizes and block coordinates as given; each raises for what it finds.

    A condition that memory decides, and all threads agree
    on, is taken both ways, and the two states are merged; where threads may disagree, each may do either. So is a
    condition whose ways do not repeat from iteration to iteration (`Repetition.either`), unless `exactly` is set.
    """

    def __init__(
        self,
        kernel: tile_ir.Kernel,
        ctx: SimtContext,
        tracked: set[Any],
        finely: bool = False,
        exactly: bool = False,
        ranks: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(kernel, ctx, tracked, finely, exactly, ranks)
        self.sequences: dict[int, tuple[Any, list[Any]]] = {}
        self.believed: Mapping[Any, bool] = {}
        self.unseen = 0  # values stored so far of which nobody knows whether they are one before

    def run(self, chosen: dict[Any, Any], host: list[Any], believed: Mapping[Any, bool] | None = None) -> None:
        """Walk the kernel from its beginning to its end, after the Binds of the `host`.

        `believed`: stores that are taken to meet no others; False: where their place cannot be evaluated.
        """
        self.believed = believed or {}
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
        self.apart = 0
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
        if memory is not None and not self._is_believed(memory, node):
            self._touch("write", memory, node.indices, 1, node, self._one_value(node.value))

    def _is_believed(self, memory: Memory, node: Any) -> bool:
        """Whether a store is taken to meet no others."""
        wholly = self.believed.get(node)
        if wholly is not False:
            return bool(wholly)
        try:
            self._linear(memory, list(node.indices), 1)
        except Unknown:
            text = f"threads write {memory.buffer.name} at unknown places: different elements, or by the same threads"
            self.ctx.report.assume(node.span, text)
            return True
        return False

    def _one_value(self, value: Any) -> Any | None:
        """What tells the value that all threads store from another one that they store there later; None if they need not
        store the same one, in each of the iterations that are evaluated together."""
        try:
            found = self.value(value)
        except Unknown as unknown:
            if unknown.varying:
                return None
            self.unseen += 1
            return ("in one nest", self.nest) if self.depth else ("unseen", self.unseen)
        if len(found) == 1:
            return found.tobytes()
        table = found.reshape(-1, self.lanes.total)
        if self.threads == self.lanes.total or not (table == table[:, :1]).all():
            return None
        return table[:, 0].tobytes()

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
            raise apart("that not every thread reaches", node.span)
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

    # -- conditions -------------------------------------------------------------------------------------------

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
                raise apart("under a condition that threads may disagree on", node.span) from None
            self._each_either(node)
            return
        else:
            condition = np.broadcast_to(value, (self.threads,)).astype(bool)
            cases = (outer & condition, outer & ~condition)
        for mask, case in zip(cases, (node.then_case, node.else_case)):
            if case is not None and mask.any():
                self.mask = mask
                self._statement(case)
        self.mask = outer

    def _each_either(self, node: Any) -> None:
        """A condition that memory decides for each thread: any thread may go either way, beside the others."""
        before = self.known()
        self.apart += 1
        self._statement(node.then_case)
        after = self.known()
        self.known_as(before)
        if node.else_case is not None:
            self._statement(node.else_case)
        self.apart -= 1
        self.or_else(after, self._stores(node), varying=True)

    def _either(self, node: Any) -> None:
        """A condition that memory decides for all threads alike: both ways, then what either may have left."""
        assert self.state is not None
        before, known = self.state.copy(), self.known()
        self.undecided += 1
        self._statement(node.then_case)
        after, self.state = self.state, before
        changed = self.known()
        self.known_as(known)
        if node.else_case is not None:
            self._statement(node.else_case)
        self.undecided -= 1
        if self.ends_here:
            self.known_as(changed)
        elif after is not None:
            self.or_else(changed, self._stores(node))
        if after is not None:
            self._joined([after])


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
