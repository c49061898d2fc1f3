"""All threads of one block, walking the final form and leaving traces in shared memory; used by the checker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir
from tvm import tirx as tir

from tile_compiler.errors import where
from tile_compiler.rewrite import is_call
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.errors import SharedMemoryRace
from tile_compiler.simt.thread_values import Array, ThreadValues, Unknown
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

LONGEST_WHILE = 64
ITERATIONS = 8  # of a loop that are walked; pipelines repeat after fewer
MANY = -2  # more than one thread


@dataclass(frozen=True)
class Scenario:
    """`size`: what dynamic sizes are taken to be. `taken`: how conditions go that are not known."""

    size: int
    taken: bool


class _Memory:
    """For each unit of one buffer the last write and read: epoch, thread (or MANY) and statement."""

    def __init__(self, buffer: Any) -> None:
        self.name = str(buffer.name)
        self.bits = dtype_of(tile_ir.dtype_name(buffer)).bits
        size = int(buffer.ty.shape[0])
        self.size = size
        self.epoch = {kind: np.full(size, -1, np.int64) for kind in ("read", "write", "atomic")}
        self.thread = {kind: np.full(size, -1, np.int64) for kind in ("read", "write", "atomic")}
        self.site = {kind: np.full(size, -1, np.int64) for kind in ("read", "write", "atomic")}
        self.flying = np.full(size, -1, np.int64)  # the statement that started an unfinished cp.async


_AGAINST = {"read": ("write", "atomic"), "atomic": ("write", "read"), "write": ("write", "read", "atomic")}


class Block(ThreadValues):
    """One walk. `met_unknown` tells afterwards whether memory decided anything."""

    def __init__(
        self, func: tir.PrimFunc, kernel: tile_ir.Kernel, ctx: SimtContext, names: list[Any], scenario: Scenario
    ) -> None:
        super().__init__(int(kernel.num_threads or 1))
        self.kernel, self.ctx, self.scenario = kernel, ctx, scenario
        self.values = {name: np.asarray([scenario.size]) for name in names}
        rest = self.lane
        for var, extent in kernel.threads:
            self.values[var] = rest % int(extent)
            rest = rest // int(extent)
        for stmt in tile_ir.statements(func.body):
            if isinstance(stmt, tir.Bind):
                self._bind(stmt)
        for var, _ in kernel.grid:
            self.values[var] = np.asarray([0])
        self.memories: dict[Any, _Memory] = {}
        self.sites: list[Any] = []
        self.site_of: dict[Any, int] = {}
        self.epoch = 0
        self.groups: list[list[tuple[_Memory, Array, Array, int]]] = []
        self.open: list[tuple[_Memory, Array, Array, int]] = []
        self.met_unknown = False
        self.quiet: dict[Any, bool] = {}

    def run(self) -> None:
        self._statement(self.kernel.body)

    # -- statements -------------------------------------------------------------------------------------------

    def _statement(self, node: Any) -> None:
        method = _STATEMENTS.get(type(node).__name__)
        if method is not None:
            method(self, node)

    def _sequence(self, node: Any) -> None:
        for part in node.seq:
            self._statement(part)

    def _scope(self, node: Any) -> None:
        self._statement(node.body)

    def _alloc(self, node: Any) -> None:
        if str(node.buffer.scope()) in tile_ir.SHARED:
            self.memories[node.buffer] = _Memory(node.buffer)
        else:
            self.follow(node.buffer)

    def _alias(self, node: Any) -> None:
        owner = node.data.args[0] if hasattr(node.data, "args") else node.data
        memory = self.memories.get(owner)
        if memory is not None:
            self.memories[node.buffer] = memory
            if dtype_of(tile_ir.dtype_name(node.buffer)).bits != memory.bits:
                self.ctx.report.assume(node.span, f"{node.buffer.name}: a view of another element width, checked whole")

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
            self._touch("write", memory, node.indices[0], 1, node, node.buffer, self._same(node.value))

    def _same(self, value: Any) -> bool:
        """Whether all threads have this value."""
        try:
            return len(self.value(value)) == 1
        except Unknown as unknown:
            return not unknown.varying

    def _evaluate(self, node: Any) -> None:
        call = node.value
        name = str(call.args[0].value) if is_call(call, "tirx.call_extern") else ""
        if name == "tl::sync_threads":
            if not self.mask.all():
                raise SharedMemoryRace("a barrier that not every thread reaches", at=node.span)
            self.epoch += 1
        elif name.startswith("tl::sync_threads<"):
            self.ctx.report.assume(node.span, "a barrier of a part of the block orders what it is meant to order")
            self.epoch += 1
        elif name == "tl::cp_async_commit":
            self.groups.append(self.open)
            self.open = []
        elif name.startswith("tl::cp_async_wait<"):
            while len(self.groups) > int(name[18:-1]):
                for memory, place, thread, site in self.groups.pop(0):
                    memory.flying[place] = -1
                    self._record("write", memory, place, thread, site)
        else:
            self._reads(call, node)

    def _for(self, node: Any) -> None:
        if self._is_quiet(node):
            return
        try:
            low, extent = self.value(node.min), self.value(node.extent)
        except Unknown as unknown:
            self.met_unknown = True
            if not self.scenario.taken:
                return
            low, extent = np.asarray([0]), np.asarray([2])
            if unknown.varying:
                extent = np.where(self.lane >= 0, 2, 0)
        self._reads(node.extent, node)
        outer = self.mask
        for number in range(min(int(extent.max(initial=0)), self._limit(node))):
            self.mask = outer & (number < extent)
            self.values[node.loop_var] = low + number
            self._statement(node.body)
        self.mask = outer

    @staticmethod
    def _limit(node: Any) -> int:
        return 1 << 20 if node.kind == tir.ForKind.UNROLLED else ITERATIONS

    def _while(self, node: Any) -> None:
        outer = self.mask
        for number in range(LONGEST_WHILE):
            self._reads(node.condition, node)
            try:
                condition = np.broadcast_to(self.value(node.condition), (self.threads,)).astype(bool)
            except Unknown as unknown:
                self.met_unknown = True
                if unknown.varying and _has_barrier(node):
                    raise SharedMemoryRace("a barrier in a loop that threads may leave apart", at=node.span) from None
                condition = np.full(self.threads, number < (3 if self.scenario.taken else 1))
            self.mask = self.mask & condition
            if not self.mask.any():
                break
            self._statement(node.body)
        self.mask = outer

    def _if(self, node: Any) -> None:
        self._reads(node.condition, node)
        if self._is_quiet(node):
            return
        outer = self.mask
        try:
            condition = np.broadcast_to(self.value(node.condition), (self.threads,)).astype(bool)
            cases = (outer & condition, outer & ~condition)
        except Unknown as unknown:
            self.met_unknown = True
            if unknown.varying:  # any thread may go either way
                cases = (outer, outer)
                if _has_barrier(node):
                    raise SharedMemoryRace(
                        "a barrier under a condition that threads may disagree on", at=node.span
                    ) from None
            else:
                cases = (outer, outer & False) if self.scenario.taken else (outer & False, outer)
        for mask, case in zip(cases, (node.then_case, node.else_case)):
            if case is not None and mask.any():
                self.mask = mask
                self._statement(case)
        self.mask = outer

    def _is_quiet(self, node: Any) -> bool:
        """Whether nothing below touches shared memory or synchronizes."""
        if node not in self.quiet:
            self.quiet[node] = not any(
                (isinstance(n, ir.Var) and (n in self.memories or n in self.private))
                or (is_call(n, "tirx.call_extern") and "sync" in str(n.args[0].value))
                for n in tile_ir.walk(node)
            ) and not any(isinstance(n, tir.AllocBuffer) for n in tile_ir.walk(node))
        return self.quiet[node]

    # -- accesses ---------------------------------------------------------------------------------------------

    def _reads(self, node: Any, stmt: Any) -> None:
        """Every access inside an expression; what a condition guards is taken where the condition holds."""
        if isinstance(node, ir.TensorLoad):
            for index in node.indices:
                self._reads(index, stmt)
            memory = self.memories.get(node.source)
            if memory is not None:
                self._touch("read", memory, node.indices[0], 1, stmt, node.source)
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
                self._touch("atomic", memory, target.indices[0], 1, stmt, target.source)
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
        for argument in node.args[1:]:
            if not is_call(argument, "tirx.address_of", "tirx.buffer_data"):
                self._reads(argument, stmt)
                continue
            target = argument.args[0]
            is_load = isinstance(target, ir.TensorLoad)
            buffer = target.source if is_load else target
            memory = self.memories.get(buffer)
            if memory is None:
                continue
            index = target.indices[0] if is_load else None
            if name.startswith("tl::cp_async<"):
                self._touch("async", memory, index, int(name[13:-1]) * 8 // memory.bits, stmt, buffer)
            elif name.startswith(("tl::ldmatrix_x", "tl::stmatrix_x")):
                outer = self.mask
                self.mask = outer & (self.lane % 32 < 8 * int(name[14]))
                self._touch(
                    "write" if name.startswith("tl::st") else "read", memory, index, 128 // memory.bits, stmt, buffer
                )
                self.mask = outer
            elif not name.startswith("tl::"):
                self.ctx.report.assume(stmt.span, f"{name} accesses {memory.name} in step with the barriers around it")

    def _touch(
        self, kind: str, memory: _Memory, index: Any, count: int, stmt: Any, buffer: Any, same: bool = False
    ) -> None:
        site = self._site(stmt)
        if isinstance(index, ir.prim.Ramp):
            index, count = index.base, int(index.lanes)
        bits = dtype_of(tile_ir.dtype_name(buffer)).bits
        try:
            if index is None or bits != memory.bits:
                raise Unknown(True)
            start = np.broadcast_to(self.value(index), (self.threads,))[self.mask]
            place = (start[:, None] + np.arange(count)).ravel()
            thread = np.repeat(self.lane[self.mask], count)
        except Unknown:
            place = np.tile(np.arange(memory.size), 2)  # any thread anywhere: two of them stand for all
            thread = np.repeat(np.asarray([MANY, MANY - 1]), memory.size)
        inside = (place >= 0) & (place < memory.size)
        place, thread = place[inside], thread[inside]
        flies = memory.flying[place]
        if (flies >= 0).any():
            bad = int(np.argmax(flies >= 0))
            self._refute(memory, int(place[bad]), stmt, kind, int(flies[bad]), "async", None, int(thread[bad]))
        for other in _AGAINST["write" if kind == "async" else kind]:
            met = (memory.epoch[other][place] == self.epoch) & (memory.thread[other][place] != thread)
            if same and other == "write":
                met &= memory.site["write"][place] != site
            if met.any():
                bad = int(np.argmax(met))
                partner = int(memory.thread[other][place[bad]])
                before = int(memory.site[other][place[bad]])
                self._refute(memory, int(place[bad]), stmt, kind, before, other, partner, int(thread[bad]))
        if kind in ("write", "async") and not same:
            order = np.argsort(place, kind="stable")
            p, t = place[order], thread[order]
            clash = (p[1:] == p[:-1]) & (t[1:] != t[:-1])
            if clash.any():
                bad = int(np.argmax(clash))
                self._refute(memory, int(p[bad]), stmt, kind, site, "write", int(t[bad]), int(t[bad + 1]))
        if kind == "async":
            memory.flying[place] = site
            self.open.append((memory, place, thread, site))
        else:
            self._record(kind, memory, place, thread, site)

    def _record(self, kind: str, memory: _Memory, place: Array, thread: Array, site: int) -> None:
        again = memory.epoch[kind][place] == self.epoch
        others = again & (memory.thread[kind][place] != thread)
        memory.epoch[kind][place] = self.epoch
        memory.thread[kind][place] = np.where(others, MANY, thread)
        shared = memory.thread[kind][place] != np.where(others, MANY, thread)
        memory.thread[kind][place[shared]] = MANY
        memory.site[kind][place] = site

    def _site(self, stmt: Any) -> int:
        if stmt not in self.site_of:
            self.site_of[stmt] = len(self.sites)
            self.sites.append(stmt)
        return self.site_of[stmt]

    def _refute(
        self,
        memory: _Memory,
        place: int,
        stmt: Any,
        kind: str,
        before: int,
        other: str,
        partner: int | None,
        thread: int,
    ) -> None:
        done = {"read": "reads", "write": "writes", "atomic": "updates", "async": "starts a copy to"}
        first = self.sites[before]
        who = "" if partner is None or partner < 0 else f" (thread {partner})"
        me = f"thread {thread}" if thread >= 0 else "a thread"
        at = f"{memory.name}[{place}]"
        problem = f"{at} is still being copied to" if other == "async" else f"a race on {at}"
        raise SharedMemoryRace(
            problem,
            at=stmt.span,
            found=f"{where(first.span) or 'a statement'} {done[other]} it{who}; {where(stmt.span) or 'a later one'} "
            f"{done[kind]} it ({me}), with no {'wait' if other == 'async' else 'barrier'} between them",
            expected="threads that meet in shared memory have a barrier between them",
            repair="T.sync_threads() between the two, where all threads of the block come by",
        )


def _has_barrier(node: Any) -> bool:
    return any(is_call(n, "tirx.call_extern") and "sync_threads" in str(n.args[0].value) for n in tile_ir.walk(node))


_STATEMENTS: dict[str, Any] = {
    "SeqStmt": Block._sequence,
    "AttrStmt": Block._scope,
    "AllocBuffer": Block._alloc,
    "DeclBuffer": Block._alias,
    "Bind": Block._bind,
    "BufferStore": Block._store,
    "Evaluate": Block._evaluate,
    "For": Block._for,
    "While": Block._while,
    "IfThenElse": Block._if,
}
