"""Replace every tile operator by loops over elements."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir
from tvm.ir import prim

from tile_compiler.context import Ahead, CompileContext
from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.passes.bounds import safe_values
from tile_compiler.ranges import RangeRewriter, Ranges
from tile_compiler.rewrite import is_call, map_kernels, substitute
from tile_compiler.tileops import lowering_of
from tile_compiler.tileops.site import Site
from tilelang import ops
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of


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

    def loop(self, node: tir.For) -> Any:
        around, self.ahead = self.ahead, self.ahead | next_tiles(node)
        lowered = super().loop(node)
        self.ahead = around
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
        site = Site(self.ranges, self.ctx, self.kernel, self.safe, self.roots, self.ahead, span)
        body = lower(op, site)
        return tile_ir.sequence([*site.temporaries, *tile_ir.statements(body)])


def next_tiles(loop: tir.For) -> dict[Any, Ahead]:
    """On-chip buffer -> the tile of a tensor that the next round of `loop` copies into it, where both are matrices."""
    found: dict[Any, Ahead] = {}
    if loop.kind != tir.ForKind.SERIAL:
        return found
    for stmt in tile_ir.statements(loop.body):
        op = ops.parse(stmt.value) if is_tile_operator(stmt) else None
        if isinstance(op, ops.Copy) and str(op.dst.source.scope()) not in tile_ir.GLOBAL:
            ahead = _tile_ahead(op.src, loop.loop_var)
            if ahead is not None:
                found[op.dst.source] = ahead
    return found


def _tile_ahead(region: Any, loop_var: Any) -> Ahead | None:
    """The region one round later; None for one that stays, is on chip or has other than two dimensions, rows in one piece."""
    buffer, rank = region.source, len(region.region)
    moving = [d for d, r in enumerate(region.region) if tile_ir.static(r.extent) != 1]
    extents = [n for d in moving if (n := tile_ir.static(region.region[d].extent)) is not None]
    strides, bits = buffer.ty.strides, dtype_of(str(buffer.ty.dtype)).bits
    plain = not len(strides) or tile_ir.static(strides[-1]) == 1
    if len(moving) != 2 or len(extents) != 2 or moving[1] != rank - 1 or not plain or bits % 8:
        return None
    mins = tile_ir.mins(region)
    if str(buffer.scope()) not in tile_ir.GLOBAL or tile_ir.free_of(list(mins), [loop_var]):
        return None

    def wide(value: Any) -> Any:
        return prim.Cast("int64", value)

    following = [wide(substitute(m, {loop_var: loop_var + 1})) for m in mins]
    stride = wide(strides[moving[0]]) if len(strides) else tir.const(1, "int64")
    for extent in buffer.ty.shape[moving[0] + 1 :] if not len(strides) else ():
        stride = stride * wide(extent)

    def address(row: Any, byte: Any) -> Any:
        indices = list(following)
        indices[moving[0]] += row
        indices[moving[1]] += tir.truncdiv(byte, tir.const(bits // 8, "int64"))
        last = [wide(size) - 1 for size in buffer.ty.shape]
        return tir.address_of(tir.BufferLoad(buffer, [tir.min(i, end) for i, end in zip(indices, last)]))

    return Ahead(address, stride * (bits // 8), extents[0], extents[1] * bits // 8)


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
