"""Overlap the copies of later iterations of a pipelined loop with the work of the present one."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.loops.affine import depends
from tile_compiler.passes.lower_tile_ops import alias_roots, is_tile_operator
from tile_compiler.passes.plan_pipeline import KEYS, check_schedule
from tile_compiler.rewrite import Rewriter, is_call, map_kernels, remake_loop, substitute
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.nests import int32, is_global, is_shared, run
from tilelang import ops
from tilelang.ir import tile_ir


def plan_pipeline(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Copies from global to shared memory run `num_stages - 1` iterations ahead, each tile in `num_stages` versions.

    before:     for k in pipelined(K, 3): copy(A[k], s); gemm(s, ...)
    after:      for v in 0, 1: if v < K: copy_async(A[v], s[v]);  commit
                for k in K:
                    wait<1>; sync_threads
                    if k + 2 < K: copy_async(A[k + 2], s[(k + 2) % 3])
                    commit
                    gemm(s[k % 3], ...)

    One group is committed in every iteration, empty or not, so that the count of a wait is a constant: when iteration
    k begins, the groups of 0 .. k must be complete. With one stage the copy stays where it is, and is waited for
    before its tile is read. A copy stays in order if its tile is used outside of the loop, is written twice in it or
    read before it, or if what it reads changes in the loop.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        planner = _Plan(kernel, ctx)
        body = planner.body(kernel.body)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, planner.renamed(body), kernel.span)

    return map_kernels(func, rule)


@dataclass(frozen=True)
class _Stage:
    """A copy that can run ahead, and its place in the loop's body."""

    position: int
    copy: ops.Copy
    stmt: Any


class _Plan(Rewriter):
    def __init__(self, kernel: tile_ir.Kernel, ctx: SimtContext) -> None:
        self.kernel, self.ctx = kernel, ctx
        self.roots = alias_roots(kernel.body)
        self.versions: dict[Any, Any] = {}

    def renamed(self, body: Any) -> Any:
        """The kernel's body with the allocations (and annotations) of versioned tiles replaced."""
        return _Rename(self.versions).body(body)

    def loop(self, node: tir.For) -> Any:
        node = super().loop(node)
        notes = {str(k): v for k, v in (node.annotations or {}).items()}
        if tile_ir.PIPELINED not in notes:
            return node
        order = [int(v) for v in tile_ir.plain(notes.get(tile_ir.PIPELINE_ORDER)) or []]
        stages = [int(v) for v in tile_ir.plain(notes.get(tile_ir.PIPELINE_STAGE)) or []]
        check_schedule(node, order, "order", self.ctx)
        check_schedule(node, stages, "stage", self.ctx)
        count = max(stages) + 1 if stages else int(tile_ir.plain(notes[tile_ir.PIPELINED]))
        plain = remake_loop(node, annotations={k: v for k, v in notes.items() if k not in KEYS})
        if count < 1:
            return plain
        found = self._stages(plain)
        if not found:
            self.ctx.report.note(node.span, "pipelined loop runs in order: no copy in it can run ahead")
            return plain
        names = ", ".join(str(s.copy.dst.source.name) for s in found)
        self.ctx.report.note(node.span, f"pipelined loop: {count} version(s) of {names}")
        return _in_place(plain, found) if count == 1 else self._ahead(plain, found, count)

    # -- which copies -----------------------------------------------------------------------------------------

    def _stages(self, loop: tir.For) -> list[_Stage]:
        body = tile_ir.statements(loop.body)
        if any(is_call(n, "tirx.break_loop", "tirx.continue_loop") for n in tile_ir.walk(loop.body)):
            return []
        bound = {s.var for s in body if isinstance(s, tir.Bind)}
        found = []
        for position, stmt in enumerate(body):
            if not is_tile_operator(stmt) or not isinstance(copy := ops.parse(stmt.value), ops.Copy):
                continue
            if is_global(copy.src.source) and is_shared(copy.dst.source) and self._free(copy, position, body, bound):
                found.append(_Stage(position, copy, stmt))
        return found

    def _free(self, copy: ops.Copy, position: int, body: list[Any], bound: set[Any]) -> bool:
        """Whether the copy may run before the rest of earlier iterations."""
        tile = copy.dst.source
        if tile in self.roots or tile in self.roots.values():
            return False
        others = [s for n, s in enumerate(body) if n != position]
        inside = sum(_mentions(s, tile) for s in body)
        hints = sum(_mentions(n.args[0], tile) for n in tile_ir.walk(self.kernel.body) if _is_hint(n))
        if _mentions(self.kernel.body, tile) - hints - _allocations(self.kernel.body, tile) != inside:
            return False
        if any(_writes(s, tile) for s in others) or any(_mentions(s, tile) for s in body[:position]):
            return False
        values = {s.var: s.value for s in body if isinstance(s, tir.Bind)}
        regions = [_inlined(r, values) for r in (copy.src, copy.dst)]
        local = {n for s in body for n in _bound_inside(s)} - bound
        if any(depends(r, local) for r in regions):
            return False
        read = {n.source for r in regions for n in tile_ir.walk(r) if isinstance(n, ir.TensorLoad)}
        return not any(_writes(self.kernel.body, b) for b in (*read, copy.src.source))

    # -- several versions -------------------------------------------------------------------------------------

    def _ahead(self, loop: tir.For, found: list[_Stage], count: int) -> Any:
        body = tile_ir.statements(loop.body)
        values = {s.var: s.value for s in body if isinstance(s, tir.Bind)}
        for stage in found:
            tile = stage.copy.dst.source
            shape, dtype = [count, *tile.ty.shape], tile_ir.dtype_name(tile)
            self.versions[tile] = tir.decl_buffer(shape, dtype, name=tile.name, scope=tile.scope(), layout=None)
        var, low = loop.loop_var, loop.min
        turn = var if tile_ir.static(low) == 0 else var - low
        kind = str(var.ty)

        def issue(iteration: Any, version: Any) -> list[Any]:
            out = []
            for stage in found:
                copy = dataclasses.replace(
                    stage.copy,
                    src=substitute(_inlined(stage.copy.src, values), {var: iteration}),
                    dst=self._version(substitute(_inlined(stage.copy.dst, values), {var: iteration}), version),
                    prefer_async=True,
                )
                out.append(copy.to_stmt(stage.stmt.value.span or stage.stmt.span))
            return out

        def guarded(stmts: list[Any], condition: Any) -> Any:
            known = tile_ir.static(condition)
            if known is not None:
                return tile_ir.sequence(stmts if known else [])
            return tir.IfThenElse(condition, tile_ir.sequence(stmts), None, span=loop.span)

        commit = run("tl::cp_async_commit", span=loop.span)
        out: list[Any] = []
        for version in range(count - 1):
            number = tir.const(version, kind)
            out += [guarded(issue(low + number, int32(version)), _less(number, loop.extent)), commit]
        next_turn = turn + (count - 1)
        ahead = guarded(issue(var + (count - 1), next_turn % count), _less(next_turn, loop.extent))
        rest = [s for n, s in enumerate(body) if n not in {stage.position for stage in found}]
        reader = _Reader(self, {stage.copy.dst.source for stage in found}, turn % count)
        work = [reader.stmt(s) for s in rest]
        wait = run(f"tl::cp_async_wait<{count - 2}>", span=loop.span)
        # One barrier serves both: all threads' parts of this iteration's tiles are there, and the version that is
        # overwritten next is no longer read.
        barrier = run("tl::sync_threads", span=loop.span)
        inner = tile_ir.sequence([wait, barrier, *tile_ir.statements(ahead), commit, *work])
        return tile_ir.sequence([*(s for o in out for s in tile_ir.statements(o)), remake_loop(loop, body=inner)])

    def _version(self, region: Any, version: Any) -> Any:
        new = self.versions[region.source]
        ranges = [(_as32(version), int32(1)), *((r.min, r.extent) for r in region.region)]
        return tile_ir.region(new, ranges)


class _Reader(Rewriter):
    """Rewrites accesses of versioned tiles to one version."""

    def __init__(self, plan: _Plan, tiles: set[Any], version: Any) -> None:
        self.plan, self.tiles, self.version = plan, tiles, _as32(version)

    def expr(self, node: Any) -> Any:
        def load(n: Any) -> Any:
            if n.source not in self.tiles:
                return n
            return tir.BufferLoad(self.plan.versions[n.source], [self.version, *n.indices])

        def region(n: Any) -> Any:
            return self.plan._version(n, self.version) if n.source in self.tiles else n

        return tvm_ffi.structural_map(node, [(ir.TensorLoad, load), (ir.TensorRegion, region)])


class _Rename(Rewriter):
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


def _in_place(loop: tir.For, found: list[_Stage]) -> Any:
    """One version: a copy is started where it stands, and complete before its tile is read."""
    body = tile_ir.statements(loop.body)
    places = {stage.position: stage for stage in found}
    out: list[Any] = []
    started: list[Any] = []
    for position, stmt in enumerate(body):
        if any(_mentions(stmt, tile) for tile in started):
            out += [run("tl::cp_async_commit", span=loop.span), run("tl::cp_async_wait<0>", span=loop.span)]
            started = []
        stage = places.get(position)
        if stage is None:
            out.append(stmt)
            continue
        copy = dataclasses.replace(stage.copy, prefer_async=True)
        out.append(copy.to_stmt(stage.stmt.value.span or stage.stmt.span))
        started.append(stage.copy.dst.source)
    if started:
        out += [run("tl::cp_async_commit", span=loop.span), run("tl::cp_async_wait<0>", span=loop.span)]
    return remake_loop(loop, body=tile_ir.sequence(out))


def _less(a: Any, b: Any) -> Any:
    x, y = tile_ir.static(a), tile_ir.static(b)
    return tir.const(x < y, "bool") if x is not None and y is not None else a < b


def _as32(value: Any) -> Any:
    return value if isinstance(value, int) or str(value.ty) == "int32" else tir.Cast("int32", value)


def _inlined(node: Any, values: dict[Any, Any]) -> Any:
    """`node` with names bound in the loop's body replaced by their values."""
    for _ in range(len(values) + 1):
        if not depends(node, set(values)):
            break
        node = substitute(node, values)
    return node


def _mentions(node: Any, buffer: Any) -> int:
    """How often `node` names a buffer: loads, stores, regions, addresses."""
    count = 0
    for n in tile_ir.walk(node):
        if isinstance(n, (ir.TensorLoad, ir.TensorRegion)) and n.source.same_as(buffer):
            count += 1
        elif isinstance(n, tir.BufferStore) and n.buffer.same_as(buffer):
            count += 1
        elif isinstance(n, tir.AllocBuffer) and n.buffer.same_as(buffer):
            count += 1
        elif is_call(n, "tirx.buffer_data", "tirx.address_of") and n.args[0] is not None:
            count += bool(tile_ir.is_buffer(n.args[0]) and n.args[0].same_as(buffer))
    return count


def _allocations(node: Any, buffer: Any) -> int:
    return sum(isinstance(n, tir.AllocBuffer) and n.buffer.same_as(buffer) for n in tile_ir.walk(node))


def _is_hint(node: Any) -> bool:
    return is_call(node, "tl.annotate_layout")


def _writes(node: Any, buffer: Any) -> bool:
    """Whether a statement may write a buffer."""
    for n in tile_ir.walk(node):
        if isinstance(n, tir.BufferStore) and n.buffer.same_as(buffer):
            return True
        if isinstance(n, tir.Evaluate) and is_tile_operator(n):
            if any(r.source.same_as(buffer) for r in ops.parse(n.value).writes()):
                return True
        elif is_call(n, "tl.atomic_elem", "tirx.call_extern"):
            if _mentions(n, buffer):
                return True
    return False


def _bound_inside(stmt: Any) -> set[Any]:
    names = {n.loop_var for n in tile_ir.walk(stmt) if isinstance(n, tir.For)}
    return names | {n.var for n in tile_ir.walk(stmt) if isinstance(n, tir.Bind)}
