"""Replace every tile operator by loops over elements."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.context import Ahead, CompileContext
from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.passes.bounds import safe_values
from tile_compiler.passes.filled_tiles import FilledTiles
from tile_compiler.passes.next_tiles import next_tiles
from tile_compiler.passes.staying_tiles import Stays, staying_tiles
from tile_compiler.ranges import RangeRewriter, Ranges
from tile_compiler.rewrite import is_call, map_kernels
from tile_compiler.tileops import lowering_of
from tile_compiler.tileops.site import Site
from tilelang import ops
from tilelang.ir import tile_ir


def lower_tile_ops(func: tir.PrimFunc, ctx: CompileContext) -> tir.PrimFunc:
    """Dispatch each `tl.*` statement to its twin in `tile_compiler/tileops`.

    before:     T.tl.copy(A[bx * 128:bx * 128 + 128], f[0:128])
    after:      for i in T.parallel(128): f[i] = if_then_else(bx * 128 + i < n, A[bx * 128 + i], 0)

    Temporaries that an operator needs are allocated before it. `T.assume` has said what it can by then, and goes.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        rewriter = _LowerTileOps(func, kernel, ctx)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, rewriter.body(kernel.body), kernel.span)

    return map_kernels(func, rule)


class _LowerTileOps(RangeRewriter):
    def __init__(self, func: tir.PrimFunc, kernel: tile_ir.Kernel, ctx: CompileContext) -> None:
        super().__init__(Ranges.of_kernel(func, kernel))
        self.ctx, self.kernel = ctx, kernel
        self.safe = safe_values(kernel.body)
        self.roots = alias_roots(func.body)
        self.ahead: dict[Any, Ahead] = {}
        self.stays: dict[Any, Stays] = {}
        self.filled = FilledTiles(kernel.body, self.roots, self.safe)

    def body(self, node: Any) -> Any:
        entered = self.filled.enter()
        lowered = super().body(node)
        self.filled.leave(entered)
        return lowered

    def loop(self, node: tir.For) -> Any:
        around = self.ahead, self.stays
        self.ahead, self.stays = self.ahead | next_tiles(node), staying_tiles(node, self.roots)
        lowered = super().loop(node)
        self.ahead, self.stays = around
        return lowered

    def evaluate(self, node: tir.Evaluate) -> Any:
        if is_call(node.value, "tirx.assume"):
            return None
        if not is_tile_operator(node):
            return node
        op = ops.parse(node.value)
        lower = lowering_of(op)
        span = node.value.span or node.span
        if lower is None:
            raise UnsupportedOnTarget(f"this target has no lowering of {op.NAME}", at=span)
        site = Site(
            self.ranges,
            self.ctx,
            self.kernel,
            self.safe,
            self.roots,
            self.filled,
            self.ahead,
            self.stays.get(node),
            span,
        )
        body = lower(op, site)
        return tile_ir.sequence([*site.temporaries, *tile_ir.statements(body)])


def is_tile_operator(stmt: Any) -> bool:
    call = tile_ir.tile_call(stmt)
    return call is not None and str(call.op.name) in ops.OPERATORS


def alias_roots(body: Any) -> dict[Any, Any]:
    """alias -> the buffer that owns its storage."""
    roots: dict[Any, Any] = {}
    for node in tile_ir.walk(body, tir.DeclBuffer):
        if is_call(node.data, "tirx.buffer_data"):
            owner = node.data.args[0]
            roots[node.buffer] = roots.get(owner, owner)
    return roots
