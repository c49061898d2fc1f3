"""Overlap the copies of later iterations of a pipelined loop with the work of the present one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.passes.bounds import safe_values
from tile_compiler.passes.lower_tile_ops import alias_roots, is_tile_operator
from tile_compiler.passes.plan_pipeline import KEYS, check_schedule
from tile_compiler.ranges import RangeRewriter, Ranges
from tile_compiler.rewrite import Rewriter, is_call, map_kernels, remake_loop, renewed, substitute
from tile_compiler.simt.accesses import collect
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.copy import copy_nest
from tile_compiler.simt.operators.load_to_lds import why_not
from tile_compiler.simt.operators.nests import int32, is_fragment, is_global, run
from tile_compiler.simt.pipeline_schedule import Piece, Schedule, Scheduler, inlined, mentions, named_buffers
from tilelang import ops
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

ASYNC_PIECES = (4, 8, 16)  # bytes that one cp.async moves
ADDRESSES = 48  # registers that a loop of products takes beside its tiles


def plan_pipeline(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Statements run ahead of others, and the tiles between them have a version for each iteration under way.

    With `num_stages = n` that are the copies from global to shared memory, n - 1 iterations ahead, in n versions;
    with `order` and `stage` it is what the user says. Where the hardware copies asynchronously:

    before:     for k in pipelined(K, 3): copy(A[k], s); gemm(s, ...)
    after:      for v in 0, 1: if v < K: copy_async(A[v], s[v]);  commit
                for k in K:
                    wait<1>; sync_threads
                    if k + 2 < K: copy_async(A[k + 2], s[(k + 2) % 3])
                    commit
                    gemm(s[k % 3], ...)

    Groups are committed in every step, empty or not, so that a wait's number is a constant: of the groups that were
    closed since the copy that a reader depends on. Where it does not (`Arch.has_cp_async` is false, elements are
    converted, or pieces are too small), a tile passes through registers, so that the load has the whole step to arrive:

    after:      for v in 0, 1: if v < K: copy(A[v], s[v])
                for k in K:
                    if k + 2 < K: copy(A[k + 2], s_next)
                    gemm(s[k % 3], ...)
                    if k + 2 < K: copy(s_next, s[(k + 2) % 3])

    With one stage an asynchronous copy stays where it is, and is waited for before its tile is read. A copy stays in
    order if its tile is used outside of the loop, is written twice in it or read before it, or if what it reads
    changes in the kernel. Under an `if` whose condition is known ahead of time, copies run ahead under that condition.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        planner = _Plan(func, kernel, ctx)
        body = planner.body(kernel.body)
        renamed = Rename(planner.versions).body(body)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, renamed, kernel.span)

    if not any(tile_ir.PIPELINED in (n.annotations or {}) for n in tile_ir.walk(func.body, tir.For)):
        return func
    return map_kernels(func, rule)


class _Plan(RangeRewriter):
    """`versions` maps a tile to the buffer of all its versions."""

    def __init__(self, func: tir.PrimFunc, kernel: tile_ir.Kernel, ctx: SimtContext) -> None:
        super().__init__(Ranges.of_kernel(func, kernel))
        self.kernel, self.ctx = kernel, ctx
        self.roots = alias_roots(func.body)
        self.safe = safe_values(kernel.body)
        self.scheduler = Scheduler(kernel.body, self.roots)
        self.versions: dict[Any, Any] = {}

    def loop(self, node: tir.For) -> Any:
        node = super().loop(node)
        notes = {str(k): tile_ir.plain(v) for k, v in (node.annotations or {}).items()}
        if tile_ir.PIPELINED not in notes:
            return node
        order = [int(v) for v in notes.get(tile_ir.PIPELINE_ORDER) or []]
        stages = [int(v) for v in notes.get(tile_ir.PIPELINE_STAGE) or []]
        check_schedule(node, order, "order", self.ctx)
        check_schedule(node, stages, "stage", self.ctx)
        count = int(notes[tile_ir.PIPELINED])
        plain = remake_loop(node, annotations={k: v for k, v in notes.items() if k not in KEYS})
        if stages:
            schedule = self.scheduler.explicit(plain, order, stages, count)
        elif count:
            schedule = self.scheduler.automatic(plain, count)
        else:
            return plain
        self._note(plain, schedule, explicit=bool(stages))
        if not stages and not any(p.copy for p in schedule.pieces):
            return plain
        return _Emit(self, plain, schedule).loop()

    def _note(self, loop: tir.For, schedule: Schedule, explicit: bool) -> None:
        if not explicit and not any(p.copy for p in schedule.pieces):
            self.ctx.report.note(loop.span, "pipelined loop runs in order: no copy in it can run ahead")
        for count in sorted(set(schedule.versions.values())):
            names = ", ".join(str(tile.name) for tile, n in schedule.versions.items() if n == count)
            self.ctx.report.note(loop.span, f"pipelined loop: {count} version(s) of {names}")

    def named(self, tile: Any) -> int:
        """The number by which waits name a tile."""
        waited = self.ctx.waited
        found = next((n for n, other in enumerate(waited) if other.same_as(tile)), len(waited))
        if found == len(waited):
            waited.append(tile)
        return found

    def asynchronous(self, copy: ops.Copy, span: Any) -> bool:
        """Whether the hardware can move this copy's tile in pieces of `ASYNC_PIECES`, past the registers."""
        origin, tile = copy.src.source, copy.dst.source
        dtype = tile_ir.dtype_name(tile)
        if self.ctx.arch.has_load_to_lds:
            reason = why_not(copy, self.kernel, self.ranges, self.ctx)
            reason = "it has a safe value of its own" if origin in self.safe else reason
            if reason:
                self.ctx.report.note(span, f"T.copy: not straight to LDS, as {reason}")
            return not reason
        if not self.ctx.arch.has_cp_async or origin in self.safe or tile_ir.dtype_name(origin) != dtype:
            return False
        share = min(self.width(copy, span), max(1, self.share(copy.dst)))  # all threads take part
        return any(share * dtype_of(dtype).bits // 8 >= size for size in ASYNC_PIECES)

    def width(self, copy: ops.Copy, span: Any) -> int:
        """How many elements one access of global memory moves at most."""
        nest = tile_ir.as_parallel(copy_nest(copy.src, copy.dst, span))
        assert nest is not None
        return max((max(a.widths) for a in collect(nest, self.ranges).wide if is_global(a.buffer)), default=1)

    def share(self, tile: Any) -> int:
        """The elements of a tile that are a thread's own."""
        return math.prod(tile_ir.static(r.extent) or 1 for r in tile.region) // int(self.kernel.num_threads or 1)

    def registers(self, node: Any) -> int:
        """What a thread has for tiles on their way: what the fragments that a loop uses leave to it."""
        used = {b for b in named_buffers(node) if is_fragment(b)}
        bits = sum(self.share(tile_ir.whole(b)) * dtype_of(tile_ir.dtype_name(b)).bits for b in used)
        return self.ctx.arch.registers(int(self.kernel.num_threads or 1)) - ADDRESSES - bits // 32


class _Emit:
    """The prologue and the loop of one schedule."""

    def __init__(self, plan: _Plan, loop: tir.For, schedule: Schedule) -> None:
        self.plan, self.old, self.schedule = plan, loop, schedule
        self.turn = loop.loop_var if tile_ir.static(loop.min) == 0 else loop.loop_var - loop.min
        self.depth = schedule.depth
        for tile, count in schedule.versions.items():
            if count > 1:
                shape, dtype = [count, *tile.ty.shape], tile_ir.dtype_name(tile)
                plan.versions[tile] = tir.decl_buffer(shape, dtype, name=tile.name, scope=tile.scope(), layout=None)
        self.held: dict[int, Any] = {}
        self.registers = plan.registers(loop.body)
        self.started: list[Piece] = []  # asynchronous copies
        for piece in schedule.pieces:
            if piece.copy is not None:
                self._classify(piece, piece.copy)
        self.group = self._groups()

    def _classify(self, piece: Piece, copy: ops.Copy) -> None:
        """Whether a copy is asynchronous, goes through registers, or is done where it stands."""
        behind = [r.lead for r in self.schedule.readers(copy.dst.source)]
        if self.plan.asynchronous(copy, piece.span):
            self.started.append(piece)
        elif behind and piece.lead > max(behind) and self._registers_remain(piece, copy):
            tile, origin = copy.dst.source, copy.src.source
            narrow = min((tile, origin), key=lambda b: dtype_of(tile_ir.dtype_name(b)).bits)
            shape, dtype = [r.extent for r in copy.dst.region], tile_ir.dtype_name(narrow)
            name = f"{tile.name}_next"
            self.held[piece.place] = tir.decl_buffer(shape, dtype, name=name, scope="local.fragment", layout=None)
            self.plan.ctx.report.note(piece.span, f"T.copy: {tile.name} through registers, {piece.lead} ahead")

    def _registers_remain(self, piece: Piece, copy: ops.Copy) -> bool:
        """Whether a thread can hold its share of a tile for a step, and that of the tiles before. Otherwise the copy still runs
        ahead, and its threads wait for it. Elements that come one by one have a register each, and two for the address."""
        bits = min(dtype_of(tile_ir.dtype_name(r.source)).bits for r in (copy.src, copy.dst))
        one_by_one = self.plan.width(copy, piece.span) == 1
        needed = self.plan.share(copy.dst) * (3 * 32 if one_by_one else bits) // 32
        if needed > self.registers:
            self.plan.ctx.report.note(
                piece.span, f"T.copy: {copy.dst.source.name} not through registers, {needed} of which it needs"
            )
            return False
        self.registers -= needed
        return True

    def _groups(self) -> dict[int, int]:
        """The number of the group, within a step, of each asynchronous copy: neighbours are closed together."""
        found: dict[int, int] = {}
        number, before = -1, -2
        for piece in self.started:
            number += piece.place != before + 1
            found[piece.place] = number
            before = piece.place
        return found

    # -- the whole --------------------------------------------------------------------------------------------

    def loop(self) -> Any:
        schedule, loop = self.schedule, self.old
        declared = list(schedule.declared)
        out: list[Any] = [tir.AllocBuffer(b, span=loop.span) for b in self.held.values()]
        if self.depth:
            out, declared = [*out, *declared], []
        for step in range(self.depth):
            out += self._step(step)
        out.append(remake_loop(loop, body=tile_ir.sequence([*declared, *schedule.binds, *self._step(None)])))
        if any(not schedule.readers(p.copy.dst.source) for p in self.started if p.copy is not None):
            out.append(run("tl::cp_async_wait<0>", span=loop.span))  # nobody waits for a tile that nobody reads
        return tile_ir.sequence([s for o in out for s in tile_ir.statements(o)])

    def _step(self, prologue: int | None) -> list[Any]:
        """Step `prologue` before the loop, or the loop's own body."""
        span = self.old.span
        active = [p for p in self.schedule.pieces if prologue is None or prologue >= self.depth - p.lead]
        done: set[tuple[int, int]] = set()  # (group, steps back) that a wait has covered
        out: list[Any] = []
        earlier = self._awaited(active, 0, done, same_step=False)
        if earlier is not None:
            # One barrier serves both: all threads' parts of this step's tiles are there, and the versions that are
            # overwritten next are no longer read.
            out += [self._wait(earlier, 0, prologue), run("tl::sync_threads", span=span)]
        guarded: list[tuple[list[Any], Any]] = []
        closed = 0
        for piece in self.schedule.pieces:
            if piece in active:
                wait = self._awaited([piece], closed, done, same_step=True)
                if wait is not None:
                    guarded.append(([], self._wait(wait, closed, prologue)))
                guarded.append(self._piece(piece, prologue))
            if piece.place in self.group and self.group.get(piece.place + 1) != self.group[piece.place]:
                guarded.append(([], run("tl::cp_async_commit", span=span)))
                closed += 1
        if prologue is None:
            guarded += [self._arrival(p) for p in self.schedule.pieces if p.place in self.held]
        return out + merged(guarded)

    def _awaited(
        self, readers: Sequence[Piece], closed: int, done: set[tuple[int, int]], same_step: bool
    ) -> int | None:
        """How many groups may be pending when `readers` run, after `closed` commits of this step; None: any number.

        `same_step` chooses the copies of this step, else those of earlier ones.
        """
        count = len(set(self.group.values()))
        pending = []
        for piece in self.started:
            assert piece.copy is not None
            tile = piece.copy.dst.source
            for reader in readers:
                back = piece.lead - reader.lead
                if reader is piece or tile not in mentions(reader) or (back == 0) != same_step:
                    continue
                group = (self.group[piece.place], back)
                if group not in done:
                    done.add(group)
                    pending.append(back * count + closed - self.group[piece.place] - 1)
        return min(pending, default=None)

    def _wait(self, pending: int, closed: int, prologue: int | None) -> Any:
        """The wait that leaves `pending` groups unfinished, after `closed` commits of this step.

        Where loads are counted and not groups, it names the tiles of the pending groups, for as long as their copies
        exist: in the last iterations it is for everything.
        """
        span = self.old.span
        everything = run("tl::cp_async_wait<0>", span=span)
        if not pending or not self.plan.ctx.arch.has_load_to_lds:
            return run(f"tl::cp_async_wait<{pending}>", span=span) if pending else everything
        count = len(set(self.group.values()))
        newest = [(closed - 1 - n, 0) for n in range(min(closed, pending))]  # (group, steps back)
        newest += [(count - 1 - n % count, 1 + n // count) for n in range(pending - closed)]
        named: list[int] = []
        furthest = 0
        for group, back in newest:
            first = 0 if prologue is None else self.depth - prologue  # the iteration of lead 0 at this step is -first
            for piece in (p for p in self.started if self.group[p.place] == group):
                if piece.conditions or piece.copy is None or piece.lead - back < first:
                    continue
                tile = piece.copy.dst.source
                named.append(self.plan.named(self.plan.versions.get(tile, tile)))
                furthest = max(furthest, piece.lead - back)
        wait = run(f"tl::cp_async_wait<{pending}>", *map(int32, named), span=span)
        kind = str(self.old.loop_var.ty)
        turn = self.turn if prologue is None else tir.const(prologue - self.depth, kind)
        exists = _needs(turn + tir.const(furthest, kind), self.old.extent)
        known = tile_ir.static(exists[0]) if exists else 1
        if known is not None:
            return wait if known else everything
        return tir.IfThenElse(exists[0], wait, everything, span=span)

    # -- one statement ----------------------------------------------------------------------------------------

    def _iteration(self, piece: Piece, prologue: int | None) -> tuple[Any, Any, list[Any]]:
        """(the iteration that a piece works on, its number counted from 0, the guard that it exists)."""
        kind = str(self.old.loop_var.ty)
        if prologue is not None:
            number = tir.const(prologue - self.depth + piece.lead, kind)
            return self.old.min + number, number, _needs(number, self.old.extent)
        if not piece.lead:
            return self.old.loop_var, self.turn, []
        ahead = self.turn + piece.lead
        length = tile_ir.static(self.old.extent)
        never = length is not None and length <= piece.lead
        exists = [tir.const(False, "bool")] if never else _needs(ahead, self.old.extent)
        return self.old.loop_var + piece.lead, ahead, exists

    def _moved(self, node: Any, piece: Piece, prologue: int | None) -> Any:
        """An expression or statement of the loop, for the iteration of a piece."""
        if prologue is not None or piece.lead:
            iteration = self._iteration(piece, prologue)[0]
            node = substitute(inlined(node, self.schedule.values), {self.old.loop_var: iteration})
        return node

    def _guard(self, piece: Piece, prologue: int | None) -> list[Any]:
        _, _, exists = self._iteration(piece, prologue)
        if prologue is None and not piece.lead:
            return list(piece.conditions)
        exists = [c for c in exists if not self.plan.ranges.proves(c)]
        return [*exists, *(self._moved(c, piece, prologue) for c in piece.conditions)]

    def _piece(self, piece: Piece, prologue: int | None) -> tuple[list[Any], Any]:
        """(conditions, statement) of a piece."""
        guard = self._guard(piece, prologue)
        if piece.copy is not None and piece.place in self.held and prologue is None:
            held = tile_ir.whole(self.held[piece.place])
            copy = dataclasses.replace(piece.copy, src=self._moved(piece.copy.src, piece, None), dst=held)
            return guard, copy.to_stmt(piece.span)
        stmt = piece.stmt
        if piece in self.started and piece.copy is not None:
            stmt = dataclasses.replace(piece.copy, prefer_async=True).to_stmt(piece.span)
        stmt = self._moved(stmt, piece, prologue)
        if prologue is not None and piece.copy is None:
            stmt = renewed(stmt)
        return guard, self._versioned(stmt, piece, prologue)

    def _arrival(self, piece: Piece) -> tuple[list[Any], Any]:
        """The second half of a copy through registers."""
        assert piece.copy is not None
        held = tile_ir.whole(self.held[piece.place])
        stmt = dataclasses.replace(piece.copy, src=held, dst=self._moved(piece.copy.dst, piece, None))
        return self._guard(piece, None), self._versioned(stmt.to_stmt(piece.span), piece, None)

    def _versioned(self, stmt: Any, piece: Piece, prologue: int | None) -> Any:
        _, number, _ = self._iteration(piece, prologue)
        counts = {t: n for t, n in self.schedule.versions.items() if n > 1}
        return Version(self.plan.versions, {t: _as32(number % n) for t, n in counts.items()}).body(stmt)


class Version(Rewriter):
    """Rewrites accesses of versioned tiles to one version of each."""

    def __init__(self, buffers: dict[Any, Any], version: dict[Any, Any]) -> None:
        self.buffers, self.version = buffers, version

    def expr(self, node: Any) -> Any:
        def load(n: Any) -> Any:
            if n.source not in self.version:
                return n
            return tir.BufferLoad(self.buffers[n.source], [self.version[n.source], *n.indices])

        def region(n: Any) -> Any:
            if n.source not in self.version:
                return n
            ranges = [(self.version[n.source], int32(1)), *((r.min, r.extent) for r in n.region)]
            return tile_ir.region(self.buffers[n.source], ranges)

        return tvm_ffi.structural_map(node, [(ir.TensorLoad, load), (ir.TensorRegion, region)])

    def evaluate(self, node: tir.Evaluate) -> Any:
        op = ops.parse(node.value) if is_tile_operator(node) else None
        if isinstance(op, (ops.Reduce, ops.Scan)) and op.src.source in self.version:
            # Counted from the end, a dimension is the same one behind that of the versions.
            rank = len(op.src.region)
            node = dataclasses.replace(op, dim=op.dim % rank - rank).to_stmt(node.span)
        return super().evaluate(node)

    def store(self, node: tir.BufferStore) -> Any:
        node = super().store(node)
        if node.buffer not in self.version:
            return node
        indices = [self.version[node.buffer], *node.indices]
        return tir.BufferStore(self.buffers[node.buffer], node.value, indices, span=node.span)


class Rename(Rewriter):
    """Replaces the allocations (and annotations) of versioned tiles."""

    def __init__(self, versions: dict[Any, Any]) -> None:
        self.versions = versions

    def alloc(self, node: tir.AllocBuffer) -> Any:
        new = self.versions.get(node.buffer)
        return node if new is None else tir.AllocBuffer(new, node.annotations, span=node.span)

    def evaluate(self, node: tir.Evaluate) -> Any:
        if is_call(node.value, "tl.annotate_layout") and node.value.args[0].source in self.versions:
            op = ops.parse(node.value)
            assert isinstance(op, ops.AnnotateLayout)
            new = self.versions[node.value.args[0].source]
            return dataclasses.replace(op, buffer=tile_ir.whole(new)).to_stmt(node.value.span)
        return node


def merged(guarded: list[tuple[list[Any], Any]]) -> list[Any]:
    """Statements under their conditions; neighbours of one condition share the `if`."""
    out: list[Any] = []
    position = 0
    while position < len(guarded):
        conditions, stmt = guarded[position]
        if not conditions:
            out.append(stmt)
            position += 1
            continue
        end = position
        while end < len(guarded) and guarded[end][0] and _equal(guarded[end][0][0], conditions[0]):
            end += 1
        inner = merged([(rest[1:], s) for rest, s in guarded[position:end]])
        known = tile_ir.static(conditions[0])
        if known is None:
            span = next((s.span for s in inner if s.span is not None), None)
            out.append(tir.IfThenElse(conditions[0], tile_ir.sequence(inner), None, span=span))
        elif known:
            out += inner
        position = end
    return out


def _equal(a: Any, b: Any) -> bool:
    return bool(a.same_as(b) or tvm_ffi.structural_equal(a, b))


def _needs(number: Any, extent: Any) -> list[Any]:
    """The condition that an iteration exists, as a list; a constant stays one."""
    a, b = tile_ir.static(number), tile_ir.static(extent)
    if a is not None and b is not None:
        return [] if a < b else [tir.const(False, "bool")]
    return [number < extent]


def _as32(value: Any) -> Any:
    return value if str(value.ty) == "int32" else tir.Cast("int32", value)
