"""Let products that start from 0 say so, where the instruction can: no registers are set to 0 before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.passes.lower_tile_ops import alias_roots, is_tile_operator
from tile_compiler.rewrite import Rewriter, is_call, map_kernels
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.nests import whole_fragment
from tilelang import ops
from tilelang.ir import tile_ir


def fold_clears(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """`T.clear` of an accumulator goes where the next statement that names it is the product into it.

    before:     fill(c, 0); copy(A, s); gemm(s, t, c)
    after:      copy(A, s); gemm(s, t, c, clear_accum=True)

    For wgmma alone: its first step writes the accumulator without reading it. Others would have to clear it themselves.
    """
    if not ctx.arch.has_wgmma:
        return func
    roots = alias_roots(func.body)
    shown = {*roots, *roots.values()}  # views, and what they show

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        body = _Fold(shown).body(kernel.body)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


class _Fold(Rewriter):
    def __init__(self, shown: set[Any]) -> None:
        self.shown = shown

    def statements(self, stmts: list[Any]) -> list[Any]:
        out = super().statements(stmts)
        for position, stmt in reversed(list(enumerate(out))):
            tile = _cleared(stmt)
            if tile is None or tile in self.shown:
                continue
            user = next((n for n in range(position + 1, len(out)) if _concerns(out[n], tile)), None)
            product = None if user is None else _product_into(out[user], tile)
            if user is not None and product is not None:
                span = out[user].value.span or out[user].span
                out[user] = replace(product, clear_accum=tir.const(True, "bool")).to_stmt(span)
                del out[position]
        return out


def _operator(stmt: Any) -> Any:
    return ops.parse(stmt.value) if is_tile_operator(stmt) else None


def _cleared(stmt: Any) -> Any:
    """The fragment that a statement sets to 0 as a whole."""
    op = _operator(stmt)
    if not isinstance(op, ops.Fill) or not whole_fragment(op.dst):
        return None
    zero = isinstance(op.value, (tir.IntImm, tir.FloatImm)) and op.value.value == 0
    return op.dst.source if zero else None


def _concerns(stmt: Any, tile: Any) -> bool:
    """Whether a statement names a tile, or may skip those behind it."""
    return any(
        (isinstance(n, ir.Var) and n.same_as(tile)) or is_call(n, "tirx.break_loop", "tirx.continue_loop")
        for n in tile_ir.walk(stmt)
    )


def _product_into(stmt: Any, tile: Any) -> ops.Gemm | None:
    """The product that adds to a whole tile and does not read it as an operand."""
    op = _operator(stmt)
    if not isinstance(op, ops.Gemm) or not whole_fragment(op.c) or not op.c.source.same_as(tile):
        return None
    operand = op.a.source.same_as(tile) or op.b.source.same_as(tile)
    return None if operand or tile_ir.static(op.clear_accum) != 0 else op
