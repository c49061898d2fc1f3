"""Loops inside a parallel nest that walk over elements of a fragment: one copy of the body for each element."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.loops.affine import depends
from tile_compiler.rewrite import Rewriter, map_kernels, renewed, substitute
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.nests import is_fragment
from tilelang.ir import tile_ir

LONGEST = 64  # iterations; a longer walk would be a long text, and its tile goes through shared memory


def unroll_walks(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """A fragment is in registers, whose numbers are constants: a loop whose variable counts them has to go.

    before:     for i, j in T.parallel(4, 256):
                    for v in T.serial(2): sums[i, j] = sums[i, j] + w[i, j * 2 + v]
    after:      for i, j in T.parallel(4, 256):
                    sums[i, j] = sums[i, j] + w[i, j * 2]
                    sums[i, j] = sums[i, j] + w[i, j * 2 + 1]

    Then each access is a map of the nest's iterations, which layout inference understands.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        body = _UnrollWalks().body(kernel.body)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


class _UnrollWalks(Rewriter):
    def loop(self, node: tir.For) -> Any:
        nest = tile_ir.as_parallel(node)
        if nest is None:
            return super().loop(node)
        body = _InNest().body(nest.body)
        return node if body.same_as(nest.body) else replace(nest, body=body).to_stmt()


class _InNest(Rewriter):
    def loop(self, node: tir.For) -> Any:
        new = super().loop(node)
        low, count = tile_ir.static(new.min), tile_ir.static(new.extent)
        if low is None or count is None or count > LONGEST or not _walks(new) or _leaves(new.body):
            return new
        steps = (tir.const(low + n, str(new.loop_var.ty)) for n in range(count))
        return tile_ir.sequence([substitute(renewed(new.body), {new.loop_var: step}) for step in steps])


def _walks(loop: tir.For) -> bool:
    """Whether the loop's variable, or a name bound from it, chooses the element of a fragment."""
    moving = {loop.loop_var}
    for node in tile_ir.walk(loop.body):
        if isinstance(node, tir.Bind) and depends(tir.Evaluate(node.value), moving):
            moving.add(node.var)
        elif isinstance(node, ir.TensorLoad) and is_fragment(node.source):
            if any(depends(tir.Evaluate(i), moving) for i in node.indices):
                return True
        elif isinstance(node, tir.BufferStore) and is_fragment(node.buffer):
            if any(depends(tir.Evaluate(i), moving) for i in node.indices):
                return True
    return False


def _leaves(body: Any) -> bool:
    """Whether the body ends its loop early, or an iteration of it."""
    return any(
        isinstance(n, (tir.Break, tir.Continue)) or getattr(getattr(n, "op", None), "name", "") in _EXITS
        for n in tile_ir.walk(body)
    )


_EXITS = ("tirx.break_loop", "tirx.continue_loop")
