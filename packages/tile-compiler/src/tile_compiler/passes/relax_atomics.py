"""Atomics on memory that one thread owns become plain updates."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.rewrite import Rewriter, is_call, map_kernels
from tilelang.ir import tile_ir
from tilelang.ops.atomic import ELEMENT


def relax_atomics(func: tir.PrimFunc, ctx: CompileContext) -> tir.PrimFunc:
    """Where a block is one thread, an atomic on its on-chip memory is a load and a store.

    before:     T.Call("tl.atomic_elem", [T.address_of(s[i]), v], attrs={"op": "add"})
    after:      s[i] = s[i] + v

    Atomics on global memory stay: blocks run in several threads.
    """
    relaxer = _Relax()
    return map_kernels(func, relaxer.kernel)


class _Relax(Rewriter):
    def kernel(self, kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, self.body(kernel.body), kernel.span)

    def evaluate(self, node: tir.Evaluate) -> Any:
        update, guards = _unguarded(node.value)
        if not _on_chip(update):
            return node
        new = _store(update, node.span)
        for condition in reversed(guards):
            new = tir.IfThenElse(condition, new, None, span=node.span) if new is not None else None
        return new

    def bind(self, node: tir.Bind) -> Any:
        update, guards = _unguarded(node.value)
        if not _on_chip(update) or guards:
            return node
        place = update.args[0].args[0]
        old = tir.Bind(node.var, tir.BufferLoad(place.source, place.indices), span=node.span)
        store = _store(update, node.span)
        return old if store is None else tir.SeqStmt([old, store])


def _unguarded(value: Any) -> tuple[Any, list[Any]]:
    """An atomic under the conditions that `bounds` put around it, and those conditions."""
    guards = []
    while is_call(value, "prim.if_then_else"):
        guards.append(value.args[0])
        value = value.args[1]
    return value, guards


def _on_chip(value: Any) -> bool:
    return is_call(value, ELEMENT) and str(value.args[0].args[0].source.scope()) not in tile_ir.GLOBAL


def _store(update: Any, span: Any) -> Any:
    """The store that an atomic does; None for a load."""
    place, value = update.args[0].args[0], update.args[1]
    op = str(tile_ir.attrs_of(update)["op"])
    if op == "load":
        return None
    new = _updated(op, tir.BufferLoad(place.source, place.indices), value)
    return tir.BufferStore(place.source, new, place.indices, span=span)


def _updated(op: str, old: Any, value: Any) -> Any:
    if op in ("store", "exchange"):
        return value
    if op == "add":
        return old + value
    if op in ("max", "min"):
        combine = tir.max if op == "max" else tir.min
        return combine(value, old)  # the old content wins against NaN
    return {"and": tir.bitwise_and, "or": tir.bitwise_or, "xor": tir.bitwise_xor}[op](old, value)
