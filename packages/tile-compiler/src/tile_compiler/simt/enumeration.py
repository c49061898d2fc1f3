"""All threads of one block, walking the final form and leaving traces in the memory they share; used by the checker."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.errors import where
from tile_compiler.passes.lower_tile_ops import alias_roots
from tile_compiler.rewrite import is_call
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.errors import SharedMemoryRace
from tile_compiler.simt.repetition import Repetition
from tile_compiler.simt.shadow import MANY, Meeting, Shadow
from tile_compiler.simt.thread_values import Array, ThreadValues, Unknown
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

LONGEST = 512  # iterations of a loop without repetition that are walked; the report says where that was not all
OFFSET = "tl.offset"


@dataclass(frozen=True)
class _Memory:
    """Where a buffer lies among the places of the shadow: `unit` bytes each, `base` the first; None: global memory."""

    buffer: Any
    base: int | None
    unit: int

    @property
    def bits(self) -> int:
        return dtype_of(tile_ir.dtype_name(self.buffer)).bits

    @property
    def width(self) -> int:
        return max(1, self.bits // 8)

    @property
    def elements(self) -> int:
        return int(math.prod(int(s) for s in self.buffer.ty.shape))


@dataclass
class _Loop:
    """The loop that is being walked: states at which it may be left; whether a barrier stands in it."""

    exits: list[Shadow]
    has_barrier: bool


class Block(ThreadValues):
    """Walks of one kernel, with sizes and block coordinates as given; each raises SharedMemoryRace for what it finds.

    `state` is None where no thread can be (after a `break`). A condition that memory decides, and all threads agree
    on, is taken both ways, and the two states are merged; where threads may disagree, each may do either.
    """

    def __init__(self, kernel: tile_ir.Kernel, ctx: SimtContext, tracked: set[Any]) -> None:
        super().__init__(int(kernel.num_threads or 1))
        self.kernel, self.ctx = kernel, ctx
        self.roots = alias_roots(kernel.body)
        self.memories: dict[Any, _Memory] = {b: _Memory(b, None, 1) for b in tracked}
        self.addresses: dict[tuple[Any, int], int] = {}  # places of global memory, in order of first touch
        self.shared_places = self._place_shared()
        self.state: Shadow | None = None
        self.sites: list[Any] = []
        self.site_of: dict[Any, int] = {}
        self.loops: list[_Loop] = []
        self.quiet: dict[Any, bool] = {}
        self.repetitions: dict[Any, Repetition] = {}
        self.trace: list[int] = []

    def run(self, chosen: dict[Any, Any], host: list[Any]) -> None:
        """Walk the kernel from its beginning, after the Binds of the `host`."""
        self.values, self.private, self.unknown = dict(chosen), {}, {}
        rest = self.lane
        for var, extent in self.kernel.threads:
            self.values[var] = rest % int(extent)
            rest = rest // int(extent)
        self.mask = np.ones(self.threads, bool)
        self.state, self.loops, self.trace = Shadow(self.shared_places), [], []
        for stmt in (*host, self.kernel.body):
            self._statement(stmt)

    def _place_shared(self) -> int:
        """Lay the shadow over the block's shared memory, so that buffers that share bytes meet; how many places."""
        allocated = [n for n in tile_ir.walk(self.kernel.body) if isinstance(n, tir.AllocBuffer)]
        found = [n for n in allocated if str(n.buffer.scope()) in tile_ir.SHARED]
        views = [n.buffer for n in tile_ir.walk(self.kernel.body) if isinstance(n, tir.DeclBuffer)]
        shared = {n.buffer for n in found}
        views = [v for v in views if self.roots.get(v) in shared]
        widths = [_Memory(b, 0, 1).width for b in (*shared, *views)]
        unit = min(widths, default=1)
        end = 0
        offsets: dict[Any, int] = {}
        for node in found:
            notes = {str(k): tile_ir.plain(v) for k, v in (node.annotations or {}).items()}
            offsets[node.buffer] = int(notes.get(OFFSET, end))
            size = _Memory(node.buffer, 0, 1)
            end = max(end, offsets[node.buffer] + -(-size.elements * size.width // 16) * 16)
        for buffer in (*shared, *views):
            base = offsets[self.roots.get(buffer, buffer)] // unit
            self.memories[buffer] = _Memory(buffer, base, unit)
        return -(-end // unit)

    # -- statements -------------------------------------------------------------------------------------------

    def _statement(self, node: Any) -> None:
        method = _STATEMENTS.get(type(node).__name__)
        if method is not None and self.state is not None:
            method(self, node)

    def _sequence(self, node: Any) -> None:
        for part in node.seq:
            self._statement(part)

    def _scope(self, node: Any) -> None:
        self._statement(node.body)

    def _alloc(self, node: Any) -> None:
        if str(node.buffer.scope()) in tile_ir.PRIVATE:
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
        """Whether all threads have this value."""
        try:
            return len(self.value(value)) == 1
        except Unknown as unknown:
            return not unknown.varying

    def _evaluate(self, node: Any) -> None:
        assert self.state is not None
        call = node.value
        name = str(call.args[0].value) if is_call(call, "tirx.call_extern") else ""
        if name == "tl::sync_threads":
            if not self.mask.all():
                raise SharedMemoryRace("a barrier that not every thread reaches", at=node.span)
            self.state.barrier()
        elif name.startswith("tl::sync_threads<"):
            self.ctx.report.assume(node.span, "a barrier of a part of the block orders what it is meant to order")
            self.state.barrier()
        elif name == "tl::cp_async_commit":
            self.state.commit()
        elif name.startswith("tl::cp_async_wait<"):
            self.state.wait(int(name[18:-1]))
        elif is_call(call, "tirx.break_loop", "tirx.continue_loop"):
            self._leave(node)
        else:
            self._reads(call, node)

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
        self._reads(node.extent, node)
        try:
            low, extent = self.value(node.min), self.value(node.extent)
        except Unknown as unknown:
            self._unknown_for(node, unknown.varying)
            return
        if node.kind == tir.ForKind.UNROLLED or len(extent) > 1 or len(low) > 1:
            self._unrolled(node, low, extent)
            return
        repetition = self.repetitions.get(node)
        if repetition is None:
            repetition = self.repetitions[node] = Repetition(node, self._is_quiet)
        self._repeated(node, int(low[0]), int(extent[0]), repetition)

    def _unrolled(self, node: Any, low: Array, extent: Array) -> None:
        """Every iteration; threads may have numbers of their own."""
        outer = self.mask
        self.loops.append(_Loop([], _has_barrier(node)))
        for number in range(int(extent.max(initial=0))):
            self.mask = outer & (number < extent)
            self._iteration(node, low + number)
        self.mask = outer
        self._joined(self.loops.pop().exits)

    def _iteration(self, node: Any, value: Any) -> None:
        if self.state is not None:
            self.values[node.loop_var] = np.asarray(value)
            self._statement(node.body)

    def _repeated(self, node: Any, low: int, extent: int, repetition: Repetition) -> None:
        """Iterations until the state repeats, then those after the last full turn: see `repetition`."""
        self.loops.append(_Loop([], True))
        seen: list[tuple[int, int]] = []  # (key of the state, hash of the trace) before and in each iteration
        number, walked = 0, 0
        while number < extent and self.state is not None:
            if walked == LONGEST:
                text = f"iterations {number} to {extent} of a loop do as those before (walked: {LONGEST})"
                self.ctx.report.assume(node.span, text)
                break
            key = self._key()
            outer_trace, self.trace = self.trace, []
            self._iteration(node, np.asarray([low + number]))
            self.trace, trace = outer_trace, hash(tuple(self.trace))
            outer_trace.append(trace)
            seen.append((key, trace))
            number, walked = number + 1, walked + 1
            skip = repetition.skip(seen, number, extent, low, self)
            if skip:
                number += skip
                seen = []
        self._joined(self.loops.pop().exits)

    def _key(self) -> int:
        assert self.state is not None
        private = tuple(v.tobytes() for v in self.private.values())
        return hash((self.state.key(), private, tuple(sorted(map(hash, self.unknown.items())))))

    def _unknown_for(self, node: Any, varying: bool) -> None:
        """A trip count that memory decides: left after any number of iterations, until nothing new happens."""
        if varying and _has_barrier(node):
            raise SharedMemoryRace("a barrier in a loop that threads may leave apart", at=node.span)
        try:
            low = self.value(node.min)
        except Unknown:
            low = np.asarray([0])
        self._until_fixed(node, lambda number: self._iteration(node, low + number))

    def _until_fixed(self, node: Any, iteration: Any) -> None:
        assert self.state is not None
        self.loops.append(_Loop([self.state.copy()], True))
        last = None
        versions = 1 + max((int(b) for b in _moduli(node)), default=1)
        for number in range(LONGEST):
            if self.state is None:
                break
            iteration(number)
            if self.state is None:
                break
            self.loops[-1].exits.append(self.state.copy())
            joined = self.loops[-1].exits[0].copy()
            for other in self.loops[-1].exits[1:]:
                joined.merge(other)
            self.loops[-1].exits = [joined]
            key = joined.key()
            if number >= versions and key == last:
                break
            last = key
        self.state = None
        self._joined(self.loops.pop().exits)

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
            if unknown.varying and _has_barrier(node):
                raise SharedMemoryRace("a barrier in a loop that threads may leave apart", at=node.span) from None
        if not known:

            def turn(_: int) -> None:
                self._statement(node.body)
                if self.state is not None:
                    self._reads(node.condition, node)

            self._until_fixed(node, turn)
            return
        self.loops.append(_Loop([], _has_barrier(node)))
        for _ in range(LONGEST):
            try:
                condition = np.broadcast_to(self.value(node.condition), (self.threads,)).astype(bool)
            except Unknown as unknown:
                condition = np.zeros(self.threads, bool)
                self.ctx.report.assume(node.span, f"a loop does as before (varying: {unknown.varying})")
            self.mask = self.mask & condition
            if not self.mask.any() or self.state is None:
                break
            self._statement(node.body)
            if self.state is not None:
                self._reads(node.condition, node)
        self.mask = outer
        self._joined(self.loops.pop().exits)

    def _if(self, node: Any) -> None:
        self._reads(node.condition, node)
        if self._is_quiet(node):
            return
        outer = self.mask
        try:
            condition = np.broadcast_to(self.value(node.condition), (self.threads,)).astype(bool)
        except Unknown as unknown:
            if not unknown.varying:
                self._either(node)
                return
            cases = (outer, outer)  # any thread may go either way
            if _has_barrier(node):
                raise SharedMemoryRace(
                    "a barrier under a condition that threads may disagree on", at=node.span
                ) from None
        else:
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
        self._statement(node.then_case)
        after, self.state = self.state, before
        if node.else_case is not None:
            changed = self.private
            self.private = private
            self._statement(node.else_case)
            private = self.private
            self.private = changed
        for buffer, content in private.items():
            if not np.array_equal(content, self.private[buffer]):
                self.unknown[buffer] = True
        if after is not None:
            self._joined([after])

    def _is_quiet(self, node: Any) -> bool:
        """Whether nothing below touches memory that threads share, synchronizes, or leaves a loop."""
        if node not in self.quiet:
            self.quiet[node] = not any(
                (isinstance(n, ir.Var) and (n in self.memories or n in self.followed))
                or (is_call(n, "tirx.call_extern") and "sync" in str(n.args[0].value))
                or is_call(n, "tirx.break_loop", "tirx.continue_loop")
                or isinstance(n, tir.AllocBuffer)
                for n in tile_ir.walk(node)
            )
        return self.quiet[node]

    # -- accesses ---------------------------------------------------------------------------------------------

    def _reads(self, node: Any, stmt: Any) -> None:
        """Every access inside an expression; what a condition guards is taken where the condition holds."""
        if self._is_quiet(node):
            return
        if isinstance(node, ir.TensorLoad):
            for index in node.indices:
                self._reads(index, stmt)
            memory = self.memories.get(node.source)
            if memory is not None:
                self._touch("read", memory, node.indices, 1, stmt)
        elif is_call(node, "prim.if_then_else"):
            self._reads(node.args[0], stmt)
            outer = self.mask
            try:
                condition = np.broadcast_to(self.value(node.args[0]), (self.threads,)).astype(bool)
            except Unknown:
                condition = None
            for part, sign in ((node.args[1], True), (node.args[2], False)):
                self.mask = outer if condition is None else outer & (condition == sign)
                if self.mask.any():
                    self._reads(part, stmt)
            self.mask = outer
        elif is_call(node, "tl.atomic_elem"):
            target = node.args[0].args[0]
            memory = self.memories.get(target.source)
            if memory is not None:
                self._touch("atomic", memory, target.indices, 1, stmt)
            self._reads(node.args[1], stmt)
        elif is_call(node, "tirx.call_extern"):
            self._extern(node, stmt)
        elif isinstance(node, ir.Call):
            for part in node.args:
                self._reads(part, stmt)
        else:
            for name in ("a", "b", "value", "condition", "true_value", "false_value", "base", "stride"):
                part = getattr(node, name, None)
                if isinstance(part, ir.Expr):
                    self._reads(part, stmt)

    def _extern(self, node: Any, stmt: Any) -> None:
        name = str(node.args[0].value)
        for position, argument in enumerate(node.args[1:]):
            if not is_call(argument, "tirx.address_of", "tirx.buffer_data"):
                self._reads(argument, stmt)
                continue
            target = argument.args[0]
            is_load = isinstance(target, ir.TensorLoad)
            memory = self.memories.get(target.source if is_load else target)
            if memory is None:
                continue
            indices = target.indices if is_load else None
            if name.startswith("tl::cp_async<"):
                kind = "read" if position else "async"
                self._touch(kind, memory, indices, int(name[13:-1]) * 8 // memory.bits, stmt)
            elif name.startswith(("tl::ldmatrix_x", "tl::stmatrix_x")):
                outer = self.mask
                self.mask = outer & (self.lane % 32 < 8 * int(name[14]))
                moved = "write" if name.startswith("tl::st") else "read"
                self._touch(moved, memory, indices, 128 // memory.bits, stmt)
                self.mask = outer
            elif not name.startswith("tl::"):
                self.ctx.report.assume(
                    stmt.span, f"{name} accesses {memory.buffer.name} in step with the barriers around it"
                )

    def _touch(self, kind: str, memory: _Memory, indices: Any, count: int, stmt: Any, same: bool = False) -> None:
        assert self.state is not None
        site = self._site(stmt)
        place, thread = self._places(memory, indices, count)
        self.trace.append(hash((kind, site, place.tobytes())))
        found = self.state.meets(kind, place, thread, site, same)
        if found is None and kind in ("write", "async") and not same:
            found = _among_themselves(place, thread, site)
        if found is not None:
            self._refute(memory, found, stmt, kind)
        if kind == "async":
            self.state.start(place, thread, site)
        else:
            self.state.record(kind, place, thread, site)

    def _places(self, memory: _Memory, indices: Any, count: int) -> tuple[Array, Array]:
        """(places, threads) of an access by the active threads; any thread anywhere if the address is not known."""
        try:
            if indices is None:
                raise Unknown(True)
            start, count = self._linear(memory, list(indices), count)
            start = np.broadcast_to(start, (self.threads,))[self.mask]
            element = (start[:, None] + np.arange(count)).ravel()
            thread = np.repeat(self.lane[self.mask], count)
        except Unknown:
            if memory.base is None:
                element, thread = np.asarray([-1, -1]), np.asarray([MANY, MANY - 1])
            else:
                element = np.tile(np.arange(memory.elements), 2)  # two threads stand for all
                thread = np.repeat(np.asarray([MANY, MANY - 1]), memory.elements)
        if memory.base is None:
            return self._global_places(memory, element), thread
        inside = (element >= 0) & (element < memory.elements)
        element, thread = element[inside], thread[inside]
        if memory.bits < 8:  # neighbours share a byte, which is what a thread writes
            return memory.base + element * memory.bits // 8, thread
        factor = memory.width // memory.unit
        if factor == 1:
            return memory.base + element, thread
        place = (memory.base + element[:, None] * factor + np.arange(factor)).ravel()
        return place, np.repeat(thread, factor)

    def _linear(self, memory: _Memory, indices: list[Any], count: int) -> tuple[Array, int]:
        """(the number of the first element in the buffer's storage, how many neighbours)."""
        if isinstance(indices[-1], ir.prim.Ramp):
            count = int(indices[-1].lanes)
            indices = [*indices[:-1], indices[-1].base]
        if len(indices) == 1:
            return self.value(indices[0]), count
        shape, strides = list(memory.buffer.ty.shape), list(memory.buffer.ty.strides or ())
        total, step = np.asarray([0]), np.asarray([1])
        for dim in reversed(range(len(indices))):
            pitch = self.value(strides[dim]) if strides else step
            total = total + self.value(indices[dim]) * pitch
            step = step * self.value(shape[dim])
        return total, count

    def _global_places(self, memory: _Memory, element: Array) -> Array:
        """Places of global memory, numbered as they are met; -1, an unknown address, has one of its own."""
        assert self.state is not None
        root = self.roots.get(memory.buffer, memory.buffer)
        known, number = np.unique(element, return_inverse=True)
        first = self.shared_places
        ids = [self.addresses.setdefault((root, int(e)), first + len(self.addresses)) for e in known]
        self.state.grow(first + len(self.addresses))
        return np.asarray(ids, np.int64)[number]

    def _site(self, stmt: Any) -> int:
        if stmt not in self.site_of:
            self.site_of[stmt] = len(self.sites)
            self.sites.append(stmt)
        return self.site_of[stmt]

    def _refute(self, memory: _Memory, found: Meeting, stmt: Any, kind: str) -> None:
        done = {"read": "reads", "write": "writes", "atomic": "updates", "async": "starts a copy to"}
        first, other = self.sites[found.before], found.kind
        who = "" if found.partner < 0 else f" (thread {found.partner})"
        me = f"thread {found.thread}" if found.thread >= 0 else "a thread"
        at = self._named(memory, found.place)
        problem = f"{at} is still being copied to" if other == "async" else f"a race on {at}"
        raise SharedMemoryRace(
            problem,
            at=stmt.span,
            found=f"{where(first.span) or 'a statement'} {done[other]} it{who}; {where(stmt.span) or 'a later one'} "
            f"{done[kind]} it ({me}), with no {'wait' if other == 'async' else 'barrier'} between them",
            expected="threads that meet in one place have a barrier between them",
            repair="T.sync_threads() between the two, where all threads of the block come by",
        )

    @staticmethod
    def _named(memory: _Memory, place: int) -> str:
        if memory.base is None:
            return str(memory.buffer.name)
        return f"{memory.buffer.name}[{(place - memory.base) * memory.unit // memory.width}]"


def _among_themselves(place: Array, thread: Array, site: int) -> Meeting | None:
    """Two threads that write one place in the same statement."""
    order = np.argsort(place, kind="stable")
    p, t = place[order], thread[order]
    clash = (p[1:] == p[:-1]) & (t[1:] != t[:-1])
    if not clash.any():
        return None
    bad = int(np.argmax(clash))
    return Meeting(int(p[bad]), "write", site, int(t[bad]), int(t[bad + 1]))


def _has_barrier(node: Any) -> bool:
    return any(is_call(n, "tirx.call_extern") and "sync_threads" in str(n.args[0].value) for n in tile_ir.walk(node))


def _moduli(node: Any) -> list[int]:
    """The constants that something below is taken modulo of."""
    found = [n.b for n in tile_ir.walk(node) if type(n).__name__ == "FloorMod"]
    return [int(b.value) for b in found if isinstance(b, tir.IntImm) and 0 < b.value <= 64]


_STATEMENTS: dict[str, Any] = {
    "SeqStmt": Block._sequence,
    "AttrStmt": Block._scope,
    "AllocBuffer": Block._alloc,
    "Bind": Block._bind,
    "BufferStore": Block._store,
    "Evaluate": Block._evaluate,
    "For": Block._for,
    "While": Block._while,
    "IfThenElse": Block._if,
}
