"""Find where every on-chip tile lies and which thread does what (paper, section 4.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.loops.conflicts import check_conflicts
from tile_compiler.passes.lower_tile_ops import alias_roots, is_tile_operator
from tile_compiler.ranges import RangeRewriter, Ranges
from tile_compiler.rewrite import map_kernels
from tile_compiler.simt.accesses import collect
from tile_compiler.simt.annotations import settled
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.distribution import SMALL, Distribution, linear, replicated
from tile_compiler.simt.errors import LayoutConflict
from tile_compiler.simt.kernel_layouts import KernelLayouts
from tile_compiler.simt.layout.equations import Level, Rule, Solution, Unknown
from tile_compiler.simt.layout.solve import solve
from tile_compiler.simt.operators.fragment_view import ViewRule
from tile_compiler.simt.operators.nests import WHAT, is_fragment, is_shared, static_shape
from tile_compiler.simt.operators.parallel import NestRule
from tile_compiler.simt.operators.registry import twin_of
from tile_compiler.simt.operators.twin import RuleSite
from tile_compiler.simt.separate_layouts import Separation, apply, separation
from tilelang import ops
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import make_linear_layout


@dataclass
class _Default(Rule):
    """A fragment that nothing else decides: coalesced over the threads."""

    unknown: Unknown
    threads: int

    def propose(self, level: Level, known: Any) -> Any:
        if level == Level.FREE and self.unknown not in known:
            yield self.unknown, linear(self.unknown.shape, self.threads)


def infer_layouts(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Fill `ctx.layouts`. The function stays as it is, but for copies where one fragment is needed in two layouts.

    before:     acc, s, loops: unknown
    after:      acc: (i, j) -> thread i % 8 * 4 + j % 8 // 2 + ..., s: swizzled, each loop where its fragments are

    Raises LayoutConflict where no copy helps, or where the user fixed a layout that an operator cannot live with.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        made: set[Any] = set()  # fragments that belong to one operator
        while True:
            inference = _Inference(func, kernel, ctx)
            try:
                ctx.layouts[kernel.index] = inference.run()
            except LayoutConflict as conflict:
                separated = inference.separation(conflict, made)
                if separated is None:
                    raise
                made |= {n.buffer for n in tile_ir.walk(separated.replacement, tir.AllocBuffer)}
                kernel = apply(kernel, separated)
                continue
            return kernel

    return map_kernels(func, rule)


class _Inference(RangeRewriter):
    def __init__(self, func: tir.PrimFunc, kernel: tile_ir.Kernel, ctx: SimtContext) -> None:
        super().__init__(Ranges.of_kernel(func, kernel))
        self.ctx, self.kernel = ctx, kernel
        self.threads = int(kernel.num_threads or 1)
        self.found = KernelLayouts()
        self.places: list[tuple[Rule, Any]] = []  # the statement of each rule
        self.views: list[Rule] = []
        self.roots = alias_roots(kernel.body)
        self.teams = {  # the threads of the group that a fragment belongs to
            n: group[1]
            for node in tile_ir.walk(kernel.body)
            if (group := tile_ir.as_thread_group(node)) is not None
            for n in tile_ir.walk(node, ir.Var)
            if tile_ir.is_buffer(n) and is_fragment(n)
        }

    def run(self) -> KernelLayouts:
        self._declare()
        self.body(self.kernel.body)
        rules = [r for r in self.found.rules if r is not None]
        for rule in rules:
            rule.meet(rules)
        defaults: list[Rule] = [
            _Default("the default", None, u, self.teams.get(b, self.threads))
            for b, u in self.found.buffers.items()
            if is_fragment(b)
        ]
        self.found.solution = self._in_order([*rules, *self.views, *defaults])
        for buffer, unknown in self.found.buffers.items():
            if unknown not in self.found.solution.values and is_shared(buffer):
                self.found.solution.values[unknown] = make_linear_layout(unknown.shape)
        return self.found

    def _in_order(self, rules: list[Rule]) -> Solution:
        """The solution where nests that touch memory choose first; where that leaves one that cannot be written, or a conflict,
        the one where all nests choose in their order."""
        nests = [rule for rule in rules if isinstance(rule, NestRule)]
        try:
            solution = self._solved(rules)
            loops = [solution.values.get(nest.loop) for nest in nests]
            if all(loop.emittable for loop in loops if isinstance(loop, Distribution)):
                return solution
        except LayoutConflict:
            pass
        for nest in nests:
            nest.leads = True
        return self._solved(rules)

    def _solved(self, rules: list[Rule]) -> Solution:
        """The solution. A small tile that two operators want differently is given to every thread."""
        strict = {unknown for rule in rules for unknown, _ in rule.propose(Level.STRICT, {})}
        everywhere: dict[Unknown, LayoutConflict] = {}
        first: LayoutConflict | None = None
        while True:
            known = settled(self.kernel, self.found.buffers, self.threads, {*self.roots, *self.roots.values()})
            for unknown in everywhere:
                known.values[unknown] = replicated(unknown.shape, self.teams.get(unknown.key, self.threads))
            try:
                solution = solve(rules, known)
            except LayoutConflict as conflict:
                first = first or conflict
                blamed = conflict.unknown
                small = blamed is not None and math.prod(blamed.shape) <= SMALL
                if conflict.annotated or not small or blamed is None or blamed in strict or blamed in everywhere:
                    raise first from None
                everywhere[blamed] = conflict
                continue
            for tile, met in everywhere.items():
                why = f"as uses at {met.location} need it elsewhere"
                self.ctx.report.note(None, f"{tile.name}: every thread holds it, {why}")
            return solution

    def _declare(self) -> None:
        for node in tile_ir.walk(self.kernel.body, tir.AllocBuffer, tir.DeclBuffer):
            buffer = node.buffer
            if (
                isinstance(node, tir.DeclBuffer)
                and is_shared(buffer)
                and tile_ir.static(buffer.ty.elem_offset or 0) != 0
            ):
                raise UnsupportedOnTarget(f"{buffer.name}, a view that begins inside its buffer", at=node.span)
            if not (is_fragment(buffer) or is_shared(buffer)):
                continue
            shape = static_shape(buffer)
            if shape is None:
                raise UnsupportedOnTarget(f"on-chip buffer {buffer.name} of dynamic size", at=node.span)
            self.found.buffers[buffer] = Unknown(str(buffer.name), shape, buffer)
            if isinstance(node, tir.DeclBuffer) and is_fragment(buffer):
                self._view(node)

    def _view(self, node: tir.DeclBuffer) -> None:
        """A view of a fragment: its registers are those of the fragment, or of the view that it shows."""
        view, owner = node.buffer, node.data.args[0]
        self.found.views[view] = owner
        kinds = [dtype_of(tile_ir.dtype_name(b)) for b in (owner, view)]
        bits, view_bits = (k.bits * k.lanes for k in kinds)
        if bits != view_bits and min(k.bits for k in kinds) < 8:
            raise UnsupportedOnTarget(
                f"{owner.name} shown as {tile_ir.dtype_name(view)}",
                at=node.span,
                found=f"a fragment of {tile_ir.dtype_name(owner)}, whose elements have registers of their own",
                expected="elements of whole bytes on both sides",
                repair=f"T.copy {owner.name} to a shared buffer and take the view of that",
            )
        units = self._unknown(owner), self._unknown(view)
        self.views.append(ViewRule(f"T.view of {owner.name}", node.span, *units, bits, view_bits))

    def _unknown(self, buffer: Any) -> Unknown:
        return self.found.buffers[buffer]

    def loop(self, node: tir.For) -> Any:
        nest = tile_ir.as_parallel(node)
        if nest is None:
            return super().loop(node)
        for var, extent in zip(nest.loop_vars, nest.extents):
            self.ranges.iterate(var, 0, extent)
        check_conflicts(nest, self.ctx.report)
        accesses = collect(nest, self.ranges)
        sizes = [tile_ir.static(e) for e in nest.extents]
        if any(s is None for s in sizes):
            if accesses.fragments:
                raise UnsupportedOnTarget(
                    "T.Parallel over a fragment with an extent that is not constant", at=nest.span
                )
            self.found.rules.append(None)
            return node
        if 0 in sizes:
            self.found.rules.append(None)
            return node
        what = str(nest.annotations.get(WHAT, "T.Parallel"))
        loop = Unknown(f"the {what} loop", tuple(int(s or 0) for s in sizes))
        self._note(NestRule(what, nest.span, nest, accesses, loop, self.found.buffers, self.threads), node)
        return node

    def attribute(self, node: tir.AttrStmt) -> Any:
        outer, group = self.threads, tile_ir.as_thread_group(node)
        self.threads = outer if group is None else group[1]
        new = super().attribute(node)
        self.threads = outer
        return new

    def evaluate(self, node: tir.Evaluate) -> Any:
        if not is_tile_operator(node):
            return node
        op = ops.parse(node.value)
        span = node.value.span or node.span
        rule = twin_of(op, span).rule
        if rule is not None:
            self._note(rule(op, RuleSite(self._unknown, self.threads, self.ctx, span)), node)
        return node

    def _note(self, rule: Rule, node: Any) -> None:
        self.found.rules.append(rule)
        self.places.append((rule, node))

    def separation(self, conflict: LayoutConflict, made: set[Any]) -> Separation | None:
        """How the statement that cannot live with a layout can do without it; None for what the user fixed."""
        blamed = conflict.unknown
        if blamed is None or conflict.annotated:
            return None
        stmt = next((node for rule, node in self.places if rule is conflict.rule), None)
        if stmt is None:
            return None
        if blamed.key in made and not isinstance(conflict.rule, NestRule):
            return None
        found = separation(stmt, blamed.key)
        if found is not None:
            span = conflict.rule.span if conflict.rule is not None else None
            self.ctx.report.note(span, f"{found.how}, as {conflict.other} needs it in another layout")
        return found
