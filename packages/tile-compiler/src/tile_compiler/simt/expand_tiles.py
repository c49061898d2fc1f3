"""Turn copies, fills and atomics into parallel nests, and stage the operands of the other operators."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.passes.lower_tile_ops import alias_roots, is_tile_operator
from tile_compiler.ranges import RangeRewriter, Ranges
from tile_compiler.rewrite import map_kernels
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.materialize_threads import group_kernel
from tile_compiler.simt.operators.expand import Expansion
from tile_compiler.simt.operators.nests import is_fragment, nest
from tile_compiler.simt.operators.registry import twin_of
from tile_compiler.simt.uniformity import Uniformity
from tilelang import ops
from tilelang.ir import tile_ir


def expand_tiles(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Leave only operators with layout rules or lowerings of their own, over operands that these can work with.

    before:     T.tl.copy(A[bx * 64:bx * 64 + 64, 0:32], s[0:64, 0:32])
    after:      for i, j in T.parallel(64, 32): s[i, j] = A[bx * 64 + i, j]

    Temporaries are allocated before the operator.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        rewriter = _Expand(func, kernel, ctx)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, rewriter.body(kernel.body), kernel.span)

    return map_kernels(func, rule)


class _Expand(RangeRewriter):
    def __init__(self, func: tir.PrimFunc, kernel: tile_ir.Kernel, ctx: SimtContext) -> None:
        super().__init__(Ranges.of_kernel(func, kernel))
        self.ctx, self.kernel = ctx, kernel
        self.roots = alias_roots(func.body)
        self.uniformity = Uniformity(kernel)
        self.in_nest = self.divergent = False

    def loop(self, node: tir.For) -> Any:
        outer = self.in_nest, self.divergent
        self.in_nest = self.in_nest or tile_ir.as_parallel(node) is not None
        self.divergent = self.divergent or self.uniformity.varies(node.extent)
        new = super().loop(node)
        self.in_nest, self.divergent = outer
        return new

    def while_loop(self, node: tir.While) -> Any:
        outer = self.divergent
        self.divergent = outer or self.uniformity.varies(node.condition)
        new = super().while_loop(node)
        self.divergent = outer
        return new

    def branch(self, node: tir.IfThenElse) -> Any:
        outer = self.divergent
        self.divergent = outer or self.uniformity.varies(node.condition)
        new = super().branch(node)
        self.divergent = outer
        return new

    def attribute(self, node: tir.AttrStmt) -> Any:
        outer, group = self.kernel, tile_ir.as_thread_group(node)
        self.kernel = outer if group is None else group_kernel(outer, group)
        new = super().attribute(node)
        self.kernel = outer
        return new

    def store(self, node: tir.BufferStore) -> Any:
        """An element of a fragment that the whole block stores: the threads that hold it do so."""
        own = any(self.uniformity.varies(e) for e in (node.value, *node.indices))
        if self.in_nest or self.divergent or own or not is_fragment(node.buffer):
            return node
        return nest([], lambda _: node, "a store", node.span)

    def evaluate(self, node: tir.Evaluate) -> Any:
        if not is_tile_operator(node):
            return node
        op = ops.parse(node.value)
        span = node.value.span or node.span
        if twin_of(op, span).expand is None:
            return node
        site = Expansion(
            self.ctx,
            self.kernel,
            self.ranges,
            self.roots,
            _expanded,
            self.uniformity,
            span,
            in_nest=self.in_nest,
            by_thread=self.in_nest or self.divergent,
        )
        body = _expanded(op, site)
        return tile_ir.sequence([*site.temporaries, *tile_ir.statements(body)])


def _expanded(op: ops.TileOp, site: Expansion) -> Any:
    expand = twin_of(op, site.span).expand
    return op.to_stmt(site.span) if expand is None else expand(op, site)
