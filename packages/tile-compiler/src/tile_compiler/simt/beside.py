"""Accesses of a tensor that never meet, or only in one thread's hands.

C[bx * 128 + tx // 8, 0:4]   and   C[bx * 128 + tx // 8 + 64, 0:4]   for 512 threads: beside each other, whoever makes them
C[bx * 128 + tx // 8, 0:4]   and   C[bx * 128 + tx // 8, 0:4]        each element has its thread, the same in both
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir, sym
from tvm import tirx as tir

from tile_compiler.loops.affine import depends
from tile_compiler.rewrite import is_call, substitute
from tile_compiler.simt.memory_effects import Effect, Interval, interval
from tile_compiler.simt.owners import apart, owners
from tile_compiler.simt.uniformity import Uniformity
from tilelang.ir import tile_ir

MOST = (1 << 31) - 1  # blocks in a dimension of a grid
LARGEST = 1 << 20  # places of a tensor, counted in boxes around them, whose threads are looked at


class Names:
    """Of a kernel, the variables of threads, loops and statements: those that may differ between two accesses (`inside`), and
    what the others stand for (`bound`)."""

    def __init__(self, kernel: tile_ir.Kernel, uniform: Uniformity) -> None:
        self.inside: set[Any] = {var for var, _ in kernel.threads}
        self.bound: dict[Any, Any] = {}
        self.analyzer = sym.Analyzer()
        for _, extent in kernel.grid:
            if isinstance(extent, ir.Var):  # there is a block
                self.analyzer.bind(extent, ir.Range(tir.const(1, str(extent.ty)), tir.const(MOST, str(extent.ty))))
        first: dict[Any, Any] = {}
        for bind in tile_ir.walk(kernel.body, tir.Bind):
            if not tvm_ffi.structural_equal(first.setdefault(bind.var, bind.value), bind.value):
                self.inside.add(bind.var)  # copies of a statement, each with its own
        self._find(kernel.body, uniform, False)

    def _find(self, stmt: Any, uniform: Uniformity, again: bool) -> None:
        """`again`: in a loop, where a value that memory has a part in may be another one later."""
        for part in tile_ir.statements(stmt):
            if isinstance(part, tir.Bind):
                self._bind(part, uniform, again)
            elif isinstance(part, tir.For):
                self.inside.add(part.loop_var)
                self._find(part.body, uniform, True)
            elif isinstance(part, tir.While):
                self._find(part.body, uniform, True)
            elif isinstance(part, tir.IfThenElse):
                for case in (part.then_case, part.else_case):
                    if case is not None:
                        self._find(case, uniform, again)
            elif isinstance(part, tir.AttrStmt):
                self._find(part.body, uniform, again)

    def _bind(self, bind: tir.Bind, uniform: Uniformity, again: bool) -> None:
        if bind.var in self.inside:
            return
        value = substitute(bind.value, self.bound)
        if is_computed(value):
            self.bound[bind.var] = value
        elif again or uniform.varies(value):
            self.inside.add(bind.var)

    def is_apart(self, shift: Any, below: int, above: int) -> bool:
        """Whether `shift` is `below` or more towards negative numbers, or `above` or more towards positive ones."""
        number = tile_ir.static(shift)
        if number is not None:
            return number <= -below or number >= above
        return bool(self.analyzer.can_prove(shift >= above) or self.analyzer.can_prove(shift <= -below))

    def within(self, loops: Collection[Any]) -> Names:
        """In one iteration of these loops, whose variables have one value."""
        new = copy.copy(self)
        new.inside = self.inside - {loop.loop_var for loop in loops if isinstance(loop, tir.For)}
        return new

    def resolved(self, place: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(substitute(index, self.bound) for index in place) if self.bound else place


@dataclass(frozen=True)
class _Index:
    """An index in one dimension: what all accesses of a block have in `common`, and what `differs` between threads, `least` to
    `last`; so many `lanes` follow each other."""

    common: Any
    differs: Any
    least: float
    last: float
    lanes: int


def is_computed(value: Any) -> bool:
    """Whether a value is made of variables alone: neither memory nor a function has a part in it."""
    found = tile_ir.walk(tir.Evaluate(value), ir.TensorLoad, ir.Call)
    return all(is_call(n, "prim.if_then_else") for n in found)


def beside(a: Effect, b: Effect, ranges: Mapping[Any, Interval], names: Names) -> bool:
    """Whether one access ends before the other begins, in some dimension of one tensor.

    `ranges`: of variables that differ between threads; others that the kernel defines may be anything.
    """
    for known in _dimensions(a, b, ranges, names):
        if known is None:
            continue
        mine, yours, shift = known
        below, above = mine.last + mine.lanes - yours.least, yours.last + yours.lanes - mine.least
        if math.isfinite(below + above) and names.is_apart(shift, int(below), int(above)):
            return True
    return False


def in_whole_steps(access: Effect, var: Any, ranges: Mapping[Any, Interval], names: Names) -> bool:
    """Whether two values of `var`, which all threads have in common, move an access not at all in a dimension or further than
    it reaches there: so that an element of both is one of which the same differs between threads."""
    for number, index in enumerate(access.place, 1):
        mine = _index(index, access.count if number == len(access.place) else 1, ranges, names)
        if mine is None:
            return False
        step = int(names.analyzer.modular_set(mine.common).coeff) if depends(mine.common, {var}) else 0
        if step and mine.last + mine.lanes - mine.least > step:
            return False
    return True


def same_threads(
    a: Effect,
    b: Effect,
    ranges: Mapping[Any, Interval],
    names: Names,
    threads: Mapping[Any, int],
    loops: Mapping[Any, int],
) -> bool:
    """Whether no element is one thread's in one access and another one's in the other. `threads`, `loops`: the variables with
    their extents, from 0."""
    places: list[Any] = [tir.const(0, "int64"), tir.const(0, "int64")]
    pitch, lanes = 1, (1, 1)
    for known in reversed(list(_dimensions(a, b, ranges, names))):
        if known is None:
            return False
        mine, yours, by = known
        shift = tile_ir.static(by)
        if shift is None or not math.isfinite(mine.last - mine.least + yours.last - yours.least):
            return False
        first = int(min(mine.least + shift, yours.least))
        places[0] += (mine.differs + tir.const(shift - first, "int64")) * pitch
        places[1] += (yours.differs + tir.const(-first, "int64")) * pitch
        lanes = (mine.lanes, yours.lanes) if pitch == 1 else lanes
        pitch *= int(max(mine.last + mine.lanes + shift, yours.last + yours.lanes)) - first
    if pitch == 1 or pitch > LARGEST:
        return False
    one, other = (owners(place, n, 1, pitch, threads, loops) for place, n in zip(places, lanes))
    return one is not None and other is not None and apart(one, other)


def _dimensions(
    a: Effect, b: Effect, ranges: Mapping[Any, Interval], names: Names
) -> Iterator[tuple[_Index, _Index, Any] | None]:
    """The indices of both in each dimension, and how far the first's common part lies behind the second's; None: not known."""
    if not a.buffer.same_as(b.buffer):  # a view has other dimensions
        return
    for number, (x, y) in enumerate(zip(a.place, b.place), 1):
        counts = (a.count, b.count) if number == len(a.place) else (1, 1)
        mine, yours = (_index(*index, ranges, names) for index in zip((x, y), counts))
        if mine is None or yours is None:
            yield None
        else:
            yield mine, yours, names.analyzer.simplify(mine.common - yours.common)


def _index(index: Any, lanes: int, ranges: Mapping[Any, Interval], names: Names) -> _Index | None:
    if isinstance(index, ir.prim.Ramp):
        if tile_ir.static(index.stride) != 1:
            return None
        lanes, index = int(index.lanes), index.base
    common = differs = tir.const(0, "int64")
    least = last = 0.0
    for term in _terms(index):
        used = set(tile_ir.walk(tir.Evaluate(term), ir.Var))
        if any(True for _ in tile_ir.walk(tir.Evaluate(term), ir.TensorLoad)):  # memory may change
            return None
        if used.isdisjoint(names.inside):
            common = common + tir.Cast("int64", term)
        elif all(name in ranges for name in used):
            low, high = interval(term, ranges)
            differs, least, last = differs + tir.Cast("int64", term), least + low, last + high
        else:
            return None
    return _Index(common, differs, least, last, lanes)


def _terms(index: Any) -> Iterator[Any]:
    if isinstance(index, (ir.prim.Add, ir.prim.Sub)):
        yield from _terms(index.a)
        for term in _terms(index.b):
            yield term if isinstance(index, ir.prim.Add) else tir.const(0, str(term.ty)) - term
    else:
        yield index
