"""Masks of whole tiles: one question for the block where every element keeps its value, instead of one for each element."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.loops.affine import extreme
from tile_compiler.ranges import conjunction, conjuncts, is_integer, reads_memory
from tile_compiler.rewrite import Rewriter, is_call, map_kernels, substitute
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.nests import is_fragment
from tile_compiler.simt.uniformity import Uniformity
from tilelang.ir import tile_ir


def skip_masks(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """A nest that only replaces the elements outside of a mask is left out where the mask covers the whole tile.

    before:     for i, j in T.parallel(64, 32): s[i, j] = s[i, j] if k * 32 + j <= bx * 64 + i else -inf
    after:      if not k * 32 + 31 <= bx * 64:
                    for i, j in T.parallel(64, 32): s[i, j] = s[i, j] if k * 32 + j <= bx * 64 + i else -inf

    Of a causal mask's tiles only those that the diagonal crosses are masked then. The mask is a conjunction of comparisons
    that are linear in the nest's variables; the question is the comparison at its worst element, which all threads of a
    block answer alike. A nest that stands alone under a condition stays as it is: the user asks already.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        body = _Skip(Uniformity(kernel)).body(kernel.body)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


class _Skip(Rewriter):
    def __init__(self, uniform: Uniformity) -> None:
        self.uniform = uniform

    def branch(self, node: tir.IfThenElse) -> Any:
        inner = tile_ir.statements(node.then_case)
        alone = node.else_case is None and len(inner) == 1 and tile_ir.as_parallel(inner[0]) is not None
        return node if alone else super().branch(node)

    def loop(self, node: tir.For) -> Any:
        nest = tile_ir.as_parallel(node)
        if nest is None:
            return super().loop(node)
        names: dict[Any, Any] = {}
        stmts = []
        for stmt in tile_ir.statements(nest.body):
            if isinstance(stmt, tir.Bind) and not reads_memory(stmt.value):
                names[stmt.var] = substitute(stmt.value, names)
            else:
                stmts.append(stmt)
        masks = [None if (m := _mask(s)) is None else substitute(m, names) for s in stmts]
        extents = {v: tile_ir.static(e) for v, e in zip(nest.loop_vars, nest.extents)}
        if not stmts or any(m is None for m in masks) or any(e is None for e in extents.values()):
            return node
        known = {v: int(e) for v, e in extents.items() if e is not None}
        worst = [_worst(part, known) for mask in masks for part in conjuncts(mask)]
        if any(w is None or reads_memory(w) or self.uniform.varies(w) for w in worst):
            return node
        if all(tile_ir.static(w) is not None for w in worst):
            return node
        return tir.IfThenElse(tir.Not(conjunction(worst)), node, None, span=node.span)


def _mask(stmt: Any) -> Any | None:
    """The condition under which `s[i] = s[i] if condition else other` changes nothing; None for other statements."""
    if not isinstance(stmt, tir.BufferStore) or not is_fragment(stmt.buffer):
        return None
    value = stmt.value
    if is_call(value, "prim.if_then_else"):
        condition, kept, _ = value.args
    elif isinstance(value, ir.prim.Select):
        condition, kept = value.condition, value.true_value
    else:
        return None
    same = isinstance(kept, ir.TensorLoad) and kept.source.same_as(stmt.buffer)
    if not same or not all(tvm_ffi.structural_equal(a, b) for a, b in zip(kept.indices, stmt.indices)):
        return None
    return condition


def _worst(condition: Any, extents: dict[Any, int]) -> Any | None:
    """A comparison of integers at the element of a nest where it holds least; None for what is no linear comparison."""
    if not isinstance(condition, (ir.prim.LT, ir.prim.LE, ir.prim.GT, ir.prim.GE)) or not is_integer(condition.a):
        return None
    less = isinstance(condition, (ir.prim.LT, ir.prim.LE))
    left, right = (extreme(side, extents, most) for side, most in ((condition.a, less), (condition.b, not less)))
    return None if left is None or right is None else type(condition)(left, right)
