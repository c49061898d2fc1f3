"""The conditions inside a loop body: which must be split off before lanes can run together, and how.

A condition is *hard* when something under it may not be executed where it is false: a load that would leave its
buffer, a division that would trap, a store. Every other condition is *soft*: both sides are evaluated in all
lanes and a Select takes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import ir
from tvm import tirx as tir

from tile_compiler.loops.affine import Threshold, depends, threshold
from tile_compiler.ranges import Ranges, conjunction, conjuncts, reads_memory
from tile_compiler.rewrite import Rewriter, is_call
from tilelang.ir import tile_ir


def same(a: Any, b: Any) -> bool:
    return bool(tvm_ffi.structural_equal(a, b))


def contains(parts: Iterable[Any], part: Any) -> bool:
    return any(same(p, part) for p in parts)


def equal_groups(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return all(contains(b, p) for p in a) and all(contains(a, p) for p in b)


def harmless(value: Any, ranges: Ranges) -> bool:
    """Whether an expression may be evaluated where its condition is false: no fault, no trap, no effect."""
    for node in tile_ir.walk(value):
        if isinstance(node, ir.TensorLoad) and ranges.outside(node.source, node.indices):
            return False
        if isinstance(node, (ir.prim.FloorDiv, ir.prim.FloorMod, ir.prim.Div, ir.prim.Mod)):
            divisor = tile_ir.static(node.b)
            if str(node.ty).startswith(("int", "uint")) and (divisor is None or divisor == 0):
                return False
        if isinstance(node, ir.Call) and not tile_ir.only_computes(node):
            return False
    return True


class Softener(Rewriter):
    """Turns the soft conditions of a body over `var` into Selects and collects the hard ones in `groups`.

    A conditional store into on-chip memory, whose value is harmless, becomes a store of a Select between the new
    and the old value. Global memory keeps its condition: another block may own the element.
    """

    def __init__(self, var: Any, ranges: Ranges) -> None:
        self.var, self.ranges = var, ranges
        self.groups: list[list[Any]] = []

    def expr(self, node: Any) -> Any:
        return tvm_ffi.structural_mutate(node, ((ir.Call, self._call),)) if tile_ir.holds(node, ir.Call) else node

    def _call(self, node: Any, mutator: Any) -> Any:
        new = mutator.default_mutate(node)
        if not is_call(new, "prim.if_then_else"):
            return new
        condition, then, other = new.args
        if harmless(then, self.ranges) and harmless(other, self.ranges):
            return tir.Select(condition, then, other)
        self._hard(condition)
        return new

    def branch(self, node: tir.IfThenElse) -> Any:
        new = super().branch(node)
        if not isinstance(new, tir.IfThenElse):
            return new
        if not depends(new.condition, {self.var}):
            return new  # uniform over the lanes: it stays around the vector code
        soft = self._as_selects(new)
        if soft is not None:
            return soft
        self._hard(new.condition)
        return new

    def _hard(self, condition: Any) -> None:
        parts = conjuncts(condition)
        if not any(equal_groups(parts, g) for g in self.groups):
            self.groups.append(parts)

    def _as_selects(self, node: tir.IfThenElse) -> Any:
        stores = []
        for case, positive in ((node.then_case, True), (node.else_case, False)):
            for s in tile_ir.statements(case) if case is not None else []:
                if not isinstance(s, tir.BufferStore) or str(s.buffer.scope()) in tile_ir.GLOBAL:
                    return None
                if not harmless(s.value, self.ranges) or self.ranges.outside(s.buffer, s.indices):
                    return None
                if reads_any(node.condition, [s.buffer]):
                    return None
                old = tir.BufferLoad(s.buffer, s.indices)
                pair = (s.value, old) if positive else (old, s.value)
                stores.append(tir.BufferStore(s.buffer, tir.Select(node.condition, *pair), s.indices, span=s.span))
        return tile_ir.sequence(stores)


def reads_any(node: Any, buffers: Iterable[Any]) -> bool:
    wanted = set(buffers)
    return any(n.source in wanted for n in tile_ir.walk(node, ir.TensorLoad))


@dataclass(frozen=True)
class Split:
    """The part [low, high) of a loop where all hard conditions hold; `uniform` conditions do not mention the loop."""

    uniform: list[Any]
    low: list[Any]
    high: list[Any]


def bound_in(body: Any) -> set[Any]:
    """The variables that a body gives values to: a condition with one means nothing outside of it."""
    loops = {n.loop_var for n in tile_ir.walk(body, tir.For)}
    return loops | {n.var for n in tile_ir.walk(body, tir.Bind)}


def split_of(groups: Sequence[Sequence[Any]], var: Any, stored: set[Any], bound: set[Any]) -> Split | None:
    """How to split a loop over `var` for its hard conditions, or None when one has no threshold form.

    `stored` are the buffers that the body writes: a condition that reads one has no fixed value. `bound`: the variables
    that only the body knows.
    """
    uniform: list[Any] = []
    low: list[Any] = []
    high: list[Any] = []
    for part in [p for g in groups for p in g]:
        if reads_any(part, stored) or depends(part, bound):
            return None
        if not depends(part, {var}):
            if not contains(uniform, part):
                uniform.append(part)
            continue
        if reads_memory(part) and any(depends(n, {var}) for n in tile_ir.walk(part, ir.TensorLoad)):
            return None
        found: Threshold | None = threshold(part, var)
        if found is None:
            return None
        bounds = high if found.upper else low
        if not contains(bounds, found.bound):
            bounds.append(found.bound)
    return Split(uniform, low, high)


class Resolver(Rewriter):
    """Rewrites a body with the conditions `groups` known: all true, or all false."""

    def __init__(self, groups: Sequence[Sequence[Any]], truth: bool) -> None:
        self.groups, self.truth = groups, truth

    def _known(self, condition: Any) -> bool:
        """Whether the truth of `condition` is decided."""
        parts = conjuncts(condition)
        if self.truth:
            return all(contains((p for g in self.groups for p in g), part) for part in parts)
        return any(equal_groups(parts, g) for g in self.groups)

    def expr(self, node: Any) -> Any:
        if not tile_ir.holds(node, ir.Call, ir.prim.Select, ir.prim.Cast):
            return node
        rules = ((ir.Call, self._call), (ir.prim.Select, self._select), (ir.prim.Cast, self._cast))
        return tvm_ffi.structural_mutate(node, rules)

    @staticmethod
    def _cast(node: Any, mutator: Any) -> Any:
        """A converted 0, which guards leave behind, as the constant that it is."""
        new = mutator.default_mutate(node)
        is_zero = (
            isinstance(new, ir.prim.Cast) and isinstance(new.value, (tir.IntImm, tir.FloatImm)) and not new.value.value
        )
        return tir.const(0, str(new.ty)) if is_zero and str(new.ty) in ("float16", "float32", "float64") else new

    def _call(self, node: Any, mutator: Any) -> Any:
        new = mutator.default_mutate(node)
        if is_call(new, "prim.if_then_else") and self._known(new.args[0]):
            return new.args[1 if self.truth else 2]
        return new

    def _select(self, node: Any, mutator: Any) -> Any:
        new = mutator.default_mutate(node)
        if isinstance(new, ir.prim.Select) and self._known(new.condition):
            return new.true_value if self.truth else new.false_value
        return new

    def branch(self, node: tir.IfThenElse) -> Any:
        if self._known(node.condition):
            case = node.then_case if self.truth else node.else_case
            return None if case is None else self.stmt(case)
        new = super().branch(node)
        if isinstance(new, tir.IfThenElse) and new.else_case is None and not tile_ir.statements(new.then_case):
            return None
        return new


def resolve(body: Any, groups: Sequence[Sequence[Any]], truth: bool) -> Any:
    """`body` where all conditions of `groups` are true (or false); `Evaluate(0)` when nothing is left."""
    return Resolver(groups, truth).body(body)


def window(split: Split, extent: Any, dtype: str) -> tuple[Any, Any]:
    """(low, high) of a split inside 0 .. extent, with 0 <= low <= high <= extent; empty where not uniform."""
    low: Any = tir.const(0, dtype)
    for bound in split.low:
        low = tir.max(low, bound)
    high = extent
    for bound in split.high:
        high = tir.min(high, bound)
    if split.low:
        low = tir.min(low, extent)
    if split.high or split.low:
        high = tir.max(high, low)
    if split.uniform:
        high = tir.if_then_else(conjunction(split.uniform), high, low)
    return as_type(low, dtype), as_type(high, dtype)


def as_type(value: Any, dtype: str) -> Any:
    """`value` as an expression of an integer type."""
    if isinstance(value, int):
        return tir.const(value, dtype)
    return value if str(value.ty) == dtype else tir.Cast(dtype, value)
