"""Turn `T.Parallel` nests and vector loops into plain and vector loops."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.loops.affine import depends
from tile_compiler.loops.conflicts import check_conflicts
from tile_compiler.loops.innermost import access_counts, lower_innermost, serial
from tile_compiler.loops.turned import turn_of
from tile_compiler.ranges import RangeRewriter, Ranges
from tile_compiler.rewrite import map_kernels
from tilelang.ir import tile_ir

LANES = "tl.lanes"  # annotation of nests that came from thread-level code: races are the user's, not checked here


def lower_parallel(func: tir.PrimFunc, ctx: CompileContext) -> tir.PrimFunc:
    """Order the loops of each nest so that the contiguous axis is innermost, and cut that one into vectors.

    before:     for i, j in T.parallel(64, 64): acc[i, j] = acc[i, j] * scale[i]
    after:      for i in 64:
                    scale_row = scale[i]
                    for j_chunk in 4:
                        for j in vectorized(16):
                            acc[i, j_chunk * 16 + j] = acc[i, j_chunk * 16 + j] * scale_row

    Conditions are split off first (`loops/innermost.py`); a copy that turns a matrix is the target's, where it has one
    (`loops/turned.py`). A nest whose iterations certainly write one element with different values is a `ParallelConflict`;
    where that cannot be decided the report says so.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        rewriter = _LowerParallel(Ranges.of_kernel(func, kernel), ctx)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, rewriter.body(kernel.body), kernel.span)

    return map_kernels(func, rule)


class _LowerParallel(RangeRewriter):
    def __init__(self, ranges: Ranges, ctx: CompileContext) -> None:
        super().__init__(ranges)
        self.ctx = ctx

    def loop(self, node: tir.For) -> Any:
        nest = tile_ir.as_parallel(node)
        if nest is not None:
            if LANES not in nest.annotations:
                check_conflicts(nest, self.ctx.report)
            return self._nest(nest)
        if node.kind == tir.ForKind.VECTORIZED and tile_ir.static(node.min) == 0:
            if not any(isinstance(n, (tir.IfThenElse, tir.For)) for n in tile_ir.walk(node.body)):
                return super().loop(node)  # a vector already, or code generation makes it one
            self.ranges.iterate(node.loop_var, node.min, node.extent)
            return self._innermost(node.loop_var, node.extent, self.body(node.body), node.span)
        return super().loop(node)

    def _nest(self, nest: tile_ir.ParallelNest) -> Any:
        for var, extent in zip(nest.loop_vars, nest.extents):
            self.ranges.iterate(var, 0, extent)
        body = self.body(nest.body)
        if self.ctx.turned_copy is not None and (turn := turn_of(nest, body)) is not None:
            turned = self.ctx.turned_copy(turn)
            if turned is not None:
                return turned
        order = _order(nest, body)
        axes = [(nest.loop_vars[d], nest.extents[d]) for d in order]
        innermost_var, innermost_extent = axes[-1]
        result = self._innermost(innermost_var, innermost_extent, body, nest.span)
        for var, extent in reversed(axes[:-1]):
            result = serial(var, extent, result, nest.span)
        return result

    def _innermost(self, var: Any, extent: Any, body: Any, span: Any) -> Any:
        return lower_innermost(var, extent, body, self.ranges, self.ctx.vector_bytes, span)


def _order(nest: tile_ir.ParallelNest, body: Any) -> list[int]:
    """The loops, outermost first: as written, but the one with the most neighbouring accesses goes innermost."""
    dims = list(range(len(nest.loop_vars)))
    if any(depends(e, set(nest.loop_vars)) for e in nest.extents):
        return dims

    def merit(d: int) -> tuple[int, int]:
        if tile_ir.static(nest.extents[d]) == 1:
            return (-1000, d)
        contiguous, strided, strided_stores = access_counts(body, nest.loop_vars[d])
        return (contiguous - strided - strided_stores, d)

    best = max(dims, key=merit)
    return [d for d in dims if d != best] + [best]
