"""Turn copies, fills and atomics into parallel nests, and stage the operands of the other operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.passes.lower_tile_ops import alias_roots, is_tile_operator
from tile_compiler.ranges import RangeRewriter, Ranges
from tile_compiler.rewrite import map_kernels
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.atomic import expand_atomic
from tile_compiler.simt.operators.copy import expand_copy
from tile_compiler.simt.operators.expand import Expansion
from tile_compiler.simt.operators.fill import expand_fill
from tile_compiler.simt.operators.gemm import expand_gemm
from tile_compiler.simt.operators.reduce import expand_reduce
from tile_compiler.simt.operators.scan import expand_scan
from tilelang import ops
from tilelang.ir import tile_ir

EXPANSIONS: dict[type[ops.TileOp], Callable[[Any, Expansion], Any]] = {
    ops.AtomicTile: expand_atomic,
    ops.Copy: expand_copy,
    ops.Fill: expand_fill,
    ops.Gemm: expand_gemm,
    ops.Reduce: expand_reduce,
    ops.Scan: expand_scan,
}
_KEPT = (ops.AnnotateLayout, ops.SafeValue, ops.SyncThreads, ops.Hint)


def expand_tiles(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Leave only gemm, reduce and scan over whole on-chip tiles; temporaries are allocated before the operator.

    before:     T.tl.copy(A[bx * 64:bx * 64 + 64, 0:32], s[0:64, 0:32])
    after:      for i, j in T.parallel(64, 32): s[i, j] = A[bx * 64 + i, j]
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

    def evaluate(self, node: tir.Evaluate) -> Any:
        if not is_tile_operator(node):
            return node
        op = ops.parse(node.value)
        span = node.value.span or node.span
        if isinstance(op, ops.Hint):
            self.ctx.report.note(span, f"{op.kind} has no effect on this target")
            return None
        if isinstance(op, _KEPT):
            return node
        expand = next((EXPANSIONS[c] for c in type(op).__mro__ if c in EXPANSIONS), None)
        if expand is None:
            raise UnsupportedOnTarget(f"this target has no lowering of {op.NAME}", at=span)
        site = Expansion(self.ctx, self.kernel, self.ranges, self.roots, span)
        body = expand(op, site)
        return tile_ir.sequence([*site.temporaries, *tile_ir.statements(body)])
