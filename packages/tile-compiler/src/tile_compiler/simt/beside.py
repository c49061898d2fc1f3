"""Accesses of a tensor that lie beside each other, whatever threads make them: one ends before the other begins.

C[bx * 128 + tx // 8, 0:4]   and   C[bx * 128 + tx // 8 + 64, 0:4]   for 512 threads
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import tvm_ffi
from tvm import ir, sym
from tvm import tirx as tir

from tile_compiler.simt.memory_effects import Effect, Interval, interval
from tilelang.ir import tile_ir


def defined_in(kernel: tile_ir.Kernel) -> dict[Any, Any]:
    """Variables of threads, loops and statements, which need not be the same in two accesses of a block: what they are bound to,
    or None, as also for those that copies of a statement bind to something else."""
    found: dict[Any, Any] = {var: None for var, _ in kernel.threads}
    for node in tile_ir.walk(kernel.body, tir.For, tir.Bind):
        if isinstance(node, tir.For):
            found[node.loop_var] = None
        else:
            same = node.var not in found or tvm_ffi.structural_equal(found[node.var], node.value)
            found[node.var] = node.value if same else None
    return found


def beside(a: Effect, b: Effect, ranges: Mapping[Any, Interval], inside: Mapping[Any, Any]) -> bool:
    """In some dimension of one buffer. `ranges`: of variables that differ between threads; others that are defined `inside` of
    the kernel may be anything."""
    if not a.buffer.same_as(b.buffer):  # a view has other dimensions
        return False
    for number, (x, y) in enumerate(zip(a.place, b.place), 1):
        counts = (a.count, b.count) if number == len(a.place) else (1, 1)
        mine, yours = (_extent(*index, ranges, inside) for index in zip((x, y), counts))
        if mine is None or yours is None:
            continue
        apart = tile_ir.static(sym.Analyzer().simplify(mine[0] - yours[0]))
        if apart is not None and (mine[1] + apart > yours[2] or mine[2] + apart < yours[1]):
            return True
    return False


def _extent(
    index: Any, lanes: int, ranges: Mapping[Any, Interval], inside: Mapping[Any, Any]
) -> tuple[Any, float, float] | None:
    """(what all accesses of a block have in common, the least and the last that comes to it); None where that is not known."""
    if isinstance(index, ir.prim.Ramp):
        if tile_ir.static(index.stride) != 1:
            return None
        lanes, index = int(index.lanes), index.base
    common, least, last = tir.const(0, "int64"), 0.0, lanes - 1.0
    for term in _terms(index, inside):
        names = set(tile_ir.walk(tir.Evaluate(term), ir.Var))
        if list(tile_ir.walk(tir.Evaluate(term), ir.TensorLoad)):  # memory may change
            return None
        if names.isdisjoint(inside):
            common = common + tir.Cast("int64", term)
        elif all(name in ranges for name in names):
            low, high = interval(term, ranges)
            least, last = least + low, last + high
        else:
            return None
    return common, least, last


def _terms(index: Any, inside: Mapping[Any, Any]) -> Iterator[Any]:
    """The terms of a sum, and of what it is bound to."""
    if isinstance(index, ir.prim.Add):
        yield from _terms(index.a, inside)
        yield from _terms(index.b, inside)
    elif isinstance(index, ir.Var) and inside.get(index) is not None:
        yield from _terms(inside[index], inside)
    else:
        yield index
