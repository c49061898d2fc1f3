"""Replace every tile operator and parallel nest by what one thread does."""

from __future__ import annotations

import json
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget, where
from tile_compiler.passes.bounds import UNSAFE, safe_values
from tile_compiler.passes.lower_tile_ops import is_tile_operator
from tile_compiler.ranges import Ranges, assumed_bounds, assumed_multiples
from tile_compiler.rewrite import is_call, map_kernels, remake_loop, substitute
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.layout.equations import Rule
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.materialize_threads import group_kernel, linear_thread
from tile_compiler.simt.operators.dependent import follows_earlier_launches
from tile_compiler.simt.operators.lower_nest import lower_nest
from tile_compiler.simt.operators.neighbour_atomics import JoiningGuard
from tile_compiler.simt.operators.nests import CACHE, WHAT, int32, is_fragment, run, under
from tile_compiler.simt.operators.parallel import NestRule
from tile_compiler.simt.operators.registry import twin_of
from tile_compiler.simt.operators.vectorized import vector_move
from tile_compiler.simt.rounded_tiles import rounded_tiles
from tilelang import ops
from tilelang.ir import tile_ir

ORIGIN = "tl.origin"


def lower_operators(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Dispatch each operator to its lowering, under a `tl.origin` that names the user's line.

    before:     for i, j in T.parallel(64, 32): s[i, j] = A[bx * 64 + i, j]
    after:      for c in T.unroll(2): s[c * 32 + tx // 4, tx % 4 * 8 : +8] = A[bx * 64 + c * 32 + tx // 4, ...]

    Fragments become arrays in registers. Shared buffers keep their logical indices here. Element accesses of
    thread-level code get their conditions.
    """

    maps: list[Any] = []

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        if ctx.options.get(UNSAFE):
            ctx.report.assume(kernel.span, f"all accesses are in bounds ({UNSAFE})")
        ctx.multiples[kernel.index] = assumed_multiples(func, kernel)  # for the checker: `T.assume` goes here
        ctx.bounds[kernel.index] = assumed_bounds(func, kernel)
        rewriter = _LowerOperators(func, kernel, ctx)
        body = rewriter.body(kernel.body)
        maps.extend(facts.bound(var, kernel.span) for var, facts in rewriter.low.maps)
        first = [*rewriter.low.binds, *prefetches(rewriter.low)]
        if len(kernel.threads) > 1:
            first.insert(0, tir.Bind(rewriter.low.tx, linear_thread(kernel), span=kernel.span))
        body = tile_ir.sequence([*first, *tile_ir.statements(body)])
        _check_no_fragments(body, kernel.span)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    lowered = map_kernels(func, rule)
    return lowered.with_body(_before_kernels(lowered.body, maps)) if maps else lowered


def prefetches(low: Lowering) -> list[Any]:
    """One thread asks for the tensor maps at the kernel's start, before their first use waits for them."""
    calls = [run("tl::prefetch_tensor_map", var) for var, _ in low.maps]
    return [tir.IfThenElse(low.tx == 0, tile_ir.sequence(calls), None)] if calls else []


def _before_kernels(body: Any, binds: list[Any]) -> Any:
    """The host's statements with `binds` before the first kernel."""
    stmts = tile_ir.statements(body)
    first = next(i for i, s in enumerate(stmts) if tile_ir.as_kernel(s) is not None)
    return tile_ir.sequence([*stmts[:first], *binds, *stmts[first:]])


def _check_no_fragments(body: Any, span: Any) -> None:
    """Raise UnsupportedOnTarget for what one thread does to a fragment by itself."""
    for node in tile_ir.walk(body):
        if isinstance(node, tir.Stmt):
            span = node.span or span
        if isinstance(node, ir.Var) and tile_ir.is_buffer(node) and is_fragment(node):
            raise UnsupportedOnTarget(
                f"the fragment {node.name} is accessed outside of T.Parallel and tile operators",
                at=span,
                found=f"an element of {node.name} that each thread chooses for itself, or its address",
                expected="T.Parallel, which runs an iteration where the element is",
                repair=f"write {node.name} in a loop of T.Parallel, or use a shared buffer",
            )


class _LowerOperators(JoiningGuard):
    def __init__(self, func: tir.PrimFunc, kernel: tile_ir.Kernel, ctx: SimtContext) -> None:
        super().__init__(Ranges.of_kernel(func, kernel), safe_values(kernel.body), ctx)
        self.kernel = kernel
        self.sites = iter(ctx.layouts[kernel.index].rules)
        tx = kernel.threads[0][0]
        if len(kernel.threads) > 1:
            tx = tir.Var("thread", "int32")
            self.ranges.iterate(tx, int32(0), int32(int(kernel.num_threads or 1)))
        layouts = ctx.layouts[kernel.index]
        rounded = rounded_tiles(kernel, layouts)
        self.low = Lowering(ctx, kernel, self.ranges, layouts, tx, self.safe, rounded=rounded)
        self.first_line = kernel_line(func)
        self.written = _written(func)
        self.conditions: list[Any] = []  # of the branches around the statement at hand

    def alloc(self, node: tir.AllocBuffer) -> Any:
        if not is_fragment(node.buffer):
            if str(node.buffer.scope()) in tile_ir.PRIVATE:
                self.ctx.tiles[node.buffer] = None
            return node
        return tir.AllocBuffer(self.low.registers(node.buffer), span=node.span)

    def alias(self, node: tir.DeclBuffer) -> Any:
        owner = self.low.layouts.views.get(node.buffer)
        if owner is None:
            return node
        mine, registers = self.low.registers(node.buffer), self.low.registers(owner)
        if mine is registers:
            return None
        data = ir.Call(node.data.op, [registers], attrs=node.data.attrs, ret_ty=node.data.ty)
        return tir.DeclBuffer(mine, data=data, span=node.span)

    def _wrapped(self, what: str, body: Any, span: Any) -> Any:
        """The operator's statements after those that allocate for it, under its origin."""
        text = f"{what} ({_relative(span, self.first_line)})" if where(span) else what
        parts = [s for s in tile_ir.statements(body) if not isinstance(s, tir.AllocBuffer)]
        allocations = [s for s in tile_ir.statements(body) if isinstance(s, tir.AllocBuffer)]
        marked = tir.AttrStmt(ir.StringImm(text), ORIGIN, ir.StringImm(text), tile_ir.sequence(parts), span=span)
        return tile_ir.sequence([*self.low.temporaries, *allocations, marked])

    def _start(self, span: Any, rule: Rule | None) -> None:
        self.low.span, self.low.rule, self.low.temporaries = span, rule, []

    def loop(self, node: tir.For) -> Any:
        nest = tile_ir.as_parallel(node)
        if nest is None and node.kind == tir.ForKind.VECTORIZED:
            moved = vector_move(node, self.low)
            return remake_loop(super().loop(node), kind=tir.ForKind.UNROLLED) if moved is None else moved
        if nest is None:
            return super().loop(node)
        rule = next(self.sites)
        self._start(nest.span, rule)
        what = str(nest.annotations.get(WHAT, "T.Parallel"))
        if rule is None:
            if any(tile_ir.static(e) == 0 for e in nest.extents):
                return None
            body = self._dynamic(nest)
        else:
            assert isinstance(rule, NestRule)
            body = self._hinted(nest, lower_nest(rule, self.low))
        return self._wrapped(what, body, nest.span)

    def _hinted(self, nest: tile_ir.ParallelNest, body: Any) -> Any:
        """What a copy with an eviction policy becomes, under `tl.cache`, where its loads can follow the policy."""
        policy = nest.annotations.get(CACHE)
        if policy is None:
            return body
        read = {n.source for n in tile_ir.walk(nest.body, ir.TensorLoad)} & self.written
        waits = follows_earlier_launches(self.kernel)
        if not self.ctx.arch.has_cache_hints or read or waits:
            why = f"{self.ctx.arch.name} has no such loads" if not read else "the kernel writes what it reads"
            why = "an earlier launch may write what it reads" if waits else why
            self.ctx.report.note(nest.span, f"{policy} has no effect: {why}")
            return body
        self.ctx.report.note(nest.span, f"{policy} for what is loaded to registers")
        allocations = [s for s in tile_ir.statements(body) if isinstance(s, tir.AllocBuffer)]
        parts = [s for s in tile_ir.statements(body) if not isinstance(s, tir.AllocBuffer)]
        text = ir.StringImm(str(policy))
        hinted = tir.AttrStmt(text, CACHE, text, tile_ir.sequence(parts), span=nest.span)
        return tile_ir.sequence([*allocations, hinted])

    def _dynamic(self, nest: tile_ir.ParallelNest) -> Any:
        """A nest of extents that are not constant: threads take turns over its iterations."""
        total: Any = int32(1)
        for extent in nest.extents:
            total = total * tir.Cast("int32", extent) if str(extent.ty) != "int32" else total * extent
        threads = int(self.kernel.num_threads or 1)
        turn, number = tir.Var("turn", "int32"), tir.Var("number", "int32")
        rest: Any = number
        values: dict[Any, Any] = {}
        for var, extent in reversed(list(zip(nest.loop_vars, nest.extents))):
            values[var] = tir.floormod(rest, extent)
            rest = tir.floordiv(rest, extent)
        values[nest.loop_vars[0]] = number if len(nest.loop_vars) == 1 else values[nest.loop_vars[0]]
        turns = tir.floordiv(total + (threads - 1), threads)
        self.ranges.iterate(turn, int32(0), turns)
        linear = turn * threads + self.low.tx
        self.ranges.define(number, linear)
        with self.ranges.given(number < total):
            inner = JoiningGuard(self.ranges, self.safe, self.ctx).body(substitute(nest.body, values))
        body = tile_ir.sequence([tir.Bind(number, linear), tir.IfThenElse(number < total, inner, None)])
        return tir.For(turn, int32(0), turns, tir.ForKind.SERIAL, body, annotations={"tl.registers": 1})

    def branch(self, node: tir.IfThenElse) -> Any:
        outer = self.conditions
        self.conditions = [*outer, node.condition]
        with self.ranges.given(node.condition):
            then_case = self.body(node.then_case)
        self.conditions = [*outer, tir.Not(node.condition)]
        else_case = None
        if node.else_case is not None:
            with self.ranges.given(tir.Not(node.condition)):
                else_case = self.body(node.else_case)
        self.conditions = outer
        return tir.IfThenElse(self.expr(node.condition), then_case, else_case, span=node.span)

    def attribute(self, node: tir.AttrStmt) -> Any:
        group = tile_ir.as_thread_group(node)
        if group is not None:
            return self._group(node, *group)
        if node.attr_key != tile_ir.LEADER:
            return super().attribute(node)
        leader = first_thread(self.low, self.conditions)
        if leader is None:
            raise UnsupportedOnTarget(
                "no thread is certain to execute this",
                at=node.span,
                found=f"the condition {self.conditions[-1]}",
                expected="conditions on the thread that a first thread is known of, such as tx < 32 or tx == 128",
                repair="let the threads of a range do it: one of them is chosen",
            )
        with self.ranges.given(self.low.tx == leader):
            body = self.body(node.body)
        alone = self.ranges.proves(self.low.tx == leader)
        return body if alone else tir.IfThenElse(self.low.tx == leader, body, None, span=node.span)

    def _group(self, node: tir.AttrStmt, first: int, count: int) -> Any:
        """The work of a group of threads, which number themselves from 0."""
        low, outer = self.low, self.kernel
        kept = low.tx, low.kernel, low.binds, self.conditions
        thread = tir.Var(f"{low.tx.name}_{first // count}", "int32")
        self.ranges.iterate(thread, int32(0), int32(count))
        self.kernel = low.kernel = group_kernel(outer, (first, count), thread)
        low.tx, low.binds, self.conditions = thread, [], []
        inside = tile_ir.sequence(tile_ir.statements(self.body(node.body)))
        number = tir.Bind(thread, kept[0] - first if first else kept[0], span=node.span)
        body = tile_ir.sequence([number, *low.binds, *tile_ir.statements(inside)])
        (low.tx, low.kernel, low.binds, self.conditions), self.kernel = kept, outer
        ends = [kept[0] >= first] if first else []
        if first + count < int(outer.num_threads or 1):
            ends.append(kept[0] < first + count)
        return tile_ir.thread_group(first, count, under(ends, body, node.span), node.span)

    def evaluate(self, node: tir.Evaluate) -> Any:
        if is_call(node.value, "tirx.assume"):
            return None
        if not is_tile_operator(node):
            return super().evaluate(node)
        op = ops.parse(node.value)
        span = node.value.span or node.span
        twin = twin_of(op, span)
        assert twin.lower is not None, f"{op.NAME} was to be expanded before"
        self._start(span, next(self.sites) if twin.rule is not None else None)
        body = twin.lower(op, self.low)
        return body if twin.title is None else self._wrapped(twin.title(op), body, span)


def first_thread(low: Lowering, conditions: list[Any]) -> int | None:
    """The first of the threads for which all conditions hold; None if that is not certain."""
    threads = {var for var, _ in low.kernel.threads} | {low.tx}
    varying = [c for c in conditions if not tile_ir.free_of(c, threads)]
    if not varying:
        return 0
    first = int(low.ranges.analyzer.const_int_bound(low.tx).min_value)
    certain = all(low.ranges.proves(substitute(c, {low.tx: int32(first)})) for c in varying)
    return first if certain else None


def _written(func: tir.PrimFunc) -> set[Any]:
    """The buffers that the function may write: by stores, or because something gets their address."""
    found = {n.buffer for n in tile_ir.walk(func.body, tir.BufferStore)}
    for node in tile_ir.walk(func.body):
        if is_call(node, "tirx.address_of", "tirx.buffer_data", "tl.atomic_elem") or is_tile_operator(node):
            found |= {n for n in tile_ir.walk(node, ir.Var) if tile_ir.is_buffer(n)}
    return found


def kernel_line(func: tir.PrimFunc) -> int:
    """The first line of the user's function."""
    source = func.attrs.get("tl.source") if func.attrs is not None else None
    return 0 if source is None else int(json.loads(str(getattr(source, "value", source))).get("line", 0))


def _relative(span: Any, first: int) -> str:
    line = int(where(span).rsplit(":", 1)[-1] or 0)
    return f"line {line - first + 1}" if first else f"line {line}"
