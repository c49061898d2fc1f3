"""Write out the steps of unrolled loops."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.rewrite import UNROLL, Rewriter, is_call, map_kernels, remake_loop, renewed, substitute
from tilelang.ir import tile_ir

#: Steps of a loop that are written out, at most, and statements that they become: LLVM decides about longer loops, as about
#: serial ones.
MOST, STATEMENTS = 64, 1024


def unroll_loops(func: tir.PrimFunc, ctx: CompileContext) -> tir.PrimFunc:
    """Loops of `T.unroll` become their steps, so that what a step counts with is constant and registers hold its elements.

    before:     for r in T.unroll(2): x[r] = y[r]
    after:      x[0] = y[0]; x[1] = y[1]

    One of unknown or many steps, with a factor, or with a way out becomes a serial loop.
    """
    unroller = _Unroll()
    return map_kernels(func, unroller.kernel)


class _Unroll(Rewriter):
    def kernel(self, kernel: Any) -> Any:
        return type(kernel)(kernel.index, kernel.grid, kernel.threads, self.body(kernel.body), kernel.span)

    def loop(self, node: tir.For) -> Any:
        inner = super().loop(node)
        if node.kind != tir.ForKind.UNROLLED:
            return inner
        steps = _steps(inner)
        if steps is None:
            return remake_loop(inner, kind=tir.ForKind.SERIAL, annotations={})
        turns = [substitute(renewed(inner.body), {inner.loop_var: tir.const(i, inner.loop_var.ty)}) for i in steps]
        return tile_ir.sequence([s for turn in turns for s in tile_ir.statements(turn)], node.span)


def _steps(loop: tir.For) -> range | None:
    """The values of the loop's variable; None if its steps cannot be written out."""
    low, extent = tile_ir.static(loop.min), tile_ir.static(loop.extent)
    if low is None or extent is None or extent > MOST or UNROLL in (loop.annotations or {}):
        return None
    inside = list(tile_ir.walk(loop.body))
    if extent * sum(isinstance(node, (tir.BufferStore, tir.Evaluate, tir.Bind)) for node in inside) > STATEMENTS:
        return None
    if any(is_call(node, "tirx.break_loop", "tirx.continue_loop") for node in inside):
        return None
    return range(low, low + extent)
