"""What is known about integers at a place in the IR: loop ranges, grid extents, enclosing conditions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tvm import ir, sym
from tvm import tirx as tir

from tile_compiler.rewrite import Rewriter, is_call, substitute
from tilelang.ir import tile_ir

LARGEST_DIM = 2**31 - 1  # shapes are positive and index arithmetic is int32 unless the user's dims are int64


def reads_memory(node: Any) -> bool:
    """Whether the value of an expression may change while its variables do not: loads, calls with effects."""
    return any(
        isinstance(n, ir.TensorLoad) or is_call(n, "tl.atomic_elem", "tirx.call_extern")
        for n in tile_ir.walk(node, ir.TensorLoad, ir.Call)
    )


def conjuncts(condition: Any) -> list[Any]:
    """The parts of `a and b and ...`."""
    if isinstance(condition, ir.prim.And):
        return [*conjuncts(condition.a), *conjuncts(condition.b)]
    if isinstance(condition, tir.IntImm) and condition.value:
        return []
    return [condition]


def conjunction(parts: Sequence[Any]) -> Any:
    """`a and b and ...`; a true constant for none."""
    if not parts:
        return tir.const(True, "bool")
    result = parts[0]
    for part in parts[1:]:
        result = tir.And(result, part)
    return result


NATURAL_ALIGNMENT = "tl.natural_alignment"
"""Attribute of a function whose parameters' addresses are multiples of their element's size, and of no more."""


class Ranges:
    """An analyzer and the facts that hold for one kernel, with scopes for loops and conditions.

    A variable that is known to be a multiple of c (`T.assume(n % c == 0)` at the top of the kernel or before it) is
    c * n' in every proof: then `ceildiv(n, c)` is n', and an index below `ceildiv(n, c) * c` is provably below n.
    `parameters` are the tensors that a call passes, `any_address` those of which no more than the element's own alignment
    is known.
    """

    def __init__(self) -> None:
        self.analyzer = sym.Analyzer()
        self.multiples: dict[Any, Any] = {}
        self._quotients: set[Any] = set()  # the n', which exist in proofs alone
        self._values: dict[Any, Any] = {}  # what `define` bound variables to
        self._steps: dict[Any, _Steps] = {}
        self._last: dict[Any, Any] = {}  # of loops whose ends other variables have a part in: the last value
        self.any_address: frozenset[Any] = frozenset()
        self._rests: list[Any] = []  # what the comparisons around say is not negative
        self._all_inside = False
        self.parameters: frozenset[Any] = frozenset()

    @classmethod
    def of_kernel(cls, func: tir.PrimFunc, kernel: tile_ir.Kernel) -> Ranges:
        self = cls()
        self.parameters = frozenset(p for p in func.params if tile_ir.is_buffer(p))
        if func.attrs is not None and NATURAL_ALIGNMENT in func.attrs:
            self.any_address = self.parameters
        for var, factor in assumed_multiples(func, kernel).items():
            self.multiple(var, factor)
        for var in shape_variables(func):
            self.analyzer.bind(var, ir.Range(0, tir.const(LARGEST_DIM, str(var.ty))))
        for stmt in tile_ir.statements(func.body):
            if isinstance(stmt, tir.Bind):
                self.define(stmt.var, stmt.value)
        for var, extent in (*kernel.grid, *kernel.threads):
            self.iterate(var, 0, extent)
        return self

    def multiple(self, var: Any, factor: int) -> None:
        """From here on `var`, a dimension, is a multiple of `factor`."""
        quotient = tir.Var(f"{var.name}_{factor}", str(var.ty))
        self.analyzer.bind(quotient, ir.Range(0, tir.const(LARGEST_DIM // factor + 1, str(var.ty))))
        self.multiples[var] = quotient * tir.const(factor, str(var.ty))
        self._quotients.add(quotient)

    def _known(self, value: Any) -> Any:
        if not self.multiples or isinstance(value, int):
            return value
        return self.analyzer.simplify(substitute(value, self.multiples))

    def iterate(self, var: Any, low: Any, extent: Any) -> None:
        self.analyzer.bind(var, ir.Range.from_min_extent(self._known(low), self._known(extent)), True)
        self._steps.pop(var, None)
        self._last.pop(var, None)
        if tile_ir.static(extent) is None and not reads_memory(extent) and not reads_memory(low):
            self._last[var] = low + extent - 1
        quotient = self._defined(extent)
        width = tile_ir.static(quotient.b) if isinstance(quotient, ir.prim.FloorDiv) else None
        if width is not None and width > 0:
            self._steps[var] = _Steps(low, width, tuple(_upper_bounds(self._defined(quotient.a))))

    def _defined(self, value: Any) -> Any:
        """What a variable was defined as; any other value itself."""
        return self._values.get(value, value) if isinstance(value, ir.Var) else value

    def define(self, var: Any, value: Any) -> None:
        if not ir.is_prim_expr(value) or not is_integer(value):
            return
        if not reads_memory(value):
            self.analyzer.bind(var, _selected(self._known(value)), True)
            self._values[var] = value
        elif (largest := _largest_code(value)) is not None:
            dtype = str(var.ty)
            self.analyzer.bind(var, ir.Range(tir.const(0, dtype), tir.const(largest + 1, dtype)), True)

    @contextmanager
    def given(self, *conditions: Any) -> Iterator[None]:
        """Inside, the conditions hold (parts that read memory are left out: memory may change)."""
        parts = [p for c in conditions for p in conjuncts(c) if not reads_memory(p)]
        if not parts:
            yield
            return
        known = self._known(conjunction(parts))
        rests = [rest for part in conjuncts(known) if (rest := _not_negative(part)) is not None]
        implied = [bound for rest in rests for bound in self._implied(rest)]
        before, self._rests = self._rests, [*self._rests, *rests]
        with self.analyzer.constraint_scope(conjunction([known, *implied])):
            yield
        self._rests = before

    def _implied(self, rest: Any) -> Iterator[Any]:
        """What a linear sum of several variables that is not negative says of each of them alone, given the ranges of the
        others: where i is below 31, `k + 2 * i < 64` says `k < 64`. The analyzer itself takes bounds from single variables
        only."""
        variables = list(dict.fromkeys(n for n in tile_ir.walk(rest) if isinstance(n, ir.Var)))
        found = sym.detect_linear_equation(rest, variables) if len(variables) > 1 else []
        factors = [f for f in map(tile_ir.static, found) if f is not None]
        if not factors or len(factors) < len(found):
            return
        most = [_largest(self.analyzer.const_int_bound(v), f) for v, f in zip(variables, factors)]
        for n, (variable, factor) in enumerate(zip(variables, factors)):
            others = [m for m in (*most[:n], *most[n + 1 :]) if m is not None]
            if len(others) < len(variables) - 1 or not factor:
                continue
            room = factors[-1] + sum(others)
            bound = room // -factor if factor < 0 else -(room // factor)
            if abs(bound) < LARGEST_DIM:
                value = tir.const(bound, str(variable.ty))
                yield variable <= value if factor < 0 else variable >= value

    @contextmanager
    def all_inside(self) -> Iterator[None]:
        """Inside, every access is in bounds: a condition around it says so."""
        before, self._all_inside = self._all_inside, True
        yield
        self._all_inside = before

    def proves(self, condition: Any) -> bool:
        return bool(self.analyzer.can_prove(_selected(self._known(condition))))

    def simplify(self, value: Any) -> Any:
        """The value in fewer operations: what `define` bound a variable to may take its place, unless that names a
        variable of proofs."""
        found = self.analyzer.simplify(value)
        if self._quotients and any(n in self._quotients for n in tile_ir.walk(found, ir.Var)):
            return value
        return value if any(True for _ in tile_ir.walk(found, ir.prim.Select)) else found

    def outside(self, buffer: Any, indices: Sequence[Any]) -> list[Any]:
        """The conditions that `buffer[indices]` needs to be in bounds and that cannot be proven here."""
        needed: list[Any] = []
        if self._all_inside:
            return needed
        for index, size in zip(indices, buffer.ty.shape):
            low, length = tile_ir.static(index), tile_ir.static(size)
            if low is not None and length is not None:
                if not 0 <= low < length:
                    needed.append(tir.const(False, "bool"))
                continue
            if not self.proves(index >= 0):
                needed.append(index >= 0)
            if not self.below(index, size):
                needed.append(index < size)
        return needed

    def below(self, index: Any, size: Any) -> bool:
        """Whether index < size is provable. For a size of c * k * n', index // c < k * n' is as good, and easier."""
        if self.proves(index < size) or self._last_step_below(index, size) or self._last_turn_below(index, size):
            return True
        if self._comparison_says_below(index, size):
            return True
        known = self.multiples.get(size)
        if known is None:
            return False
        factor = int(known.b.value)
        parts = [k for k in (1, 2, 3, 4, 8) if factor % k == 0]
        return any(self.proves(tir.floordiv(index, factor // k) < known.a * k) for k in parts)

    def _last_step_below(self, index: Any, size: Any) -> bool:
        """Whether index < size holds in the last of `length // width` steps, and index grows with the steps: the analyzer
        does not know that `length // width * width <= length`."""
        if isinstance(index, int) or not self._steps:
            return False
        for var in dict.fromkeys(v for v in tile_ir.walk(index, ir.Var) if v in self._steps):
            steps, found = self._steps[var], sym.detect_linear_equation(index, [var])
            factor = tile_ir.static(found[0]) if found else None
            if factor is None or factor <= 0 or factor % steps.width:
                continue
            rest = found[1] + steps.low * factor - factor
            if any(self.proves(bound * (factor // steps.width) + rest < size) for bound in steps.bounds):
                return True
        return False

    def _last_turn_below(self, index: Any, size: Any) -> bool:
        """Whether index < size holds in the last turn of a loop, and index grows with its turns: of `for i in range(j, 16)` the
        analyzer knows that i is below the largest j and 16, not that it is below 16."""
        if isinstance(index, int) or not self._last:
            return False
        for var in dict.fromkeys(v for v in tile_ir.walk(index, ir.Var) if v in self._last):
            found = sym.detect_linear_equation(index, [var])
            factor = tile_ir.static(found[0]) if found else None
            if factor is not None and factor > 0 and self.proves(found[1] + self._last[var] * factor < size):
                return True
        return False

    def _comparison_says_below(self, index: Any, size: Any) -> bool:
        """Whether one of the comparisons around, times a whole number, leaves nothing of index < size but what ranges say: where
        i is below 8, `row + 4 <= n` says `2 * row + i < 2 * n`. The analyzer finds neither what is linear nor the number."""
        if isinstance(index, int) or not self._rests:
            return False
        room = self._known(size - index - 1)
        for rest in reversed(self._rests):
            times = _ratio(room, rest)
            if times is not None and self.proves(room - rest * times >= 0):
                return True
        return False

    def inside(self, region: Any) -> bool:
        """Whether every element of a region is provably in bounds."""
        return all(
            self.proves(r.min >= 0) and self.below(r.min + r.extent - 1, size)
            for r, size in zip(region.region, region.source.ty.shape)
        )


@dataclass(frozen=True)
class _Steps:
    """A loop from `low` on over the whole steps of `width` in a length that is at most each of `bounds`."""

    low: Any
    width: int
    bounds: tuple[Any, ...]


def _upper_bounds(length: Any) -> Iterator[Any]:
    """Of a minimum both parts."""
    if isinstance(length, ir.prim.Min):
        yield from (*_upper_bounds(length.a), *_upper_bounds(length.b))
    else:
        yield length


def _not_negative(condition: Any) -> Any:
    """high - low of a comparison of integers; None of any other condition."""
    if not isinstance(condition, (ir.prim.LT, ir.prim.LE, ir.prim.GT, ir.prim.GE)) or not is_integer(condition.a):
        return None
    low, high = condition.a, condition.b
    if isinstance(condition, (ir.prim.GT, ir.prim.GE)):
        low, high = high, low
    return high - low if isinstance(condition, (ir.prim.LE, ir.prim.GE)) else high - low - 1


def _ratio(room: Any, rest: Any) -> int | None:
    """How often `rest` holds the first of its variables for each time that `room` does; None where that is no whole number, or
    not more than none."""
    for var in dict.fromkeys(n for n in tile_ir.walk(rest) if isinstance(n, ir.Var)):
        found = [sym.detect_linear_equation(side, [var]) for side in (room, rest)]
        of_room, of_rest = (tile_ir.static(side[0]) if side else None for side in found)
        if of_room and of_rest:
            return of_room // of_rest if of_room % of_rest == 0 and of_room // of_rest > 0 else None
    return None


def _largest(bound: Any, factor: Any) -> int | None:
    """The largest value of factor * v, where it is known that v is of any use in a bound."""
    value = int(bound.max_value if factor > 0 else bound.min_value)
    return factor * value if abs(value) < LARGEST_DIM else None


def _largest_code(value: Any) -> int | None:
    """The largest value of bits cut out of a number, which is not negative, whatever memory holds; None for others."""
    if isinstance(value, ir.prim.Cast):
        largest = _largest_code(value.value) if is_integer(value.value) else None
    else:
        other = tile_ir.static(getattr(value, "b", None))
        largest = None
        if other is not None and other >= 0:
            if isinstance(value, ir.prim.BitwiseAnd):
                largest = other
            elif isinstance(value, ir.prim.FloorMod) and other:
                largest = other - 1
            elif isinstance(value, ir.prim.RShift) and str(value.ty).startswith("uint"):
                largest = _largest_of(value) >> other
    return largest if largest is not None and largest < _largest_of(value) else None


def _largest_of(value: Any) -> int:
    """The largest value of an integer's type."""
    return int(tir.max_value(str(value.ty)).value)


class RangeRewriter(Rewriter):
    """A rewriter that knows, at every statement, what `Ranges` can prove there."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges

    def bind(self, node: tir.Bind) -> Any:
        self.ranges.define(node.var, node.value)
        return super().bind(node)

    def loop(self, node: tir.For) -> Any:
        self.ranges.iterate(node.loop_var, node.min, node.extent)
        return super().loop(node)

    def branch(self, node: tir.IfThenElse) -> Any:
        condition = self.expr(node.condition)
        with self.ranges.given(node.condition):
            then_case = self.body(node.then_case)
        else_case = None
        if node.else_case is not None:
            with self.ranges.given(tir.Not(node.condition)):
                else_case = self.body(node.else_case)
        same_else = else_case is None or else_case.same_as(node.else_case)
        if condition.same_as(node.condition) and then_case.same_as(node.then_case) and same_else:
            return node
        return tir.IfThenElse(condition, then_case, else_case, span=node.span)

    def while_loop(self, node: tir.While) -> Any:
        condition = self.expr(node.condition)
        with self.ranges.given(node.condition):
            body = self.body(node.body)
        if condition.same_as(node.condition) and body.same_as(node.body):
            return node
        return tir.While(condition, body, span=node.span)

    def statements(self, stmts: list[Any]) -> list[Any]:
        """As in `Rewriter`; after `T.assume(c)` the rest of the scope may rely on c."""
        for position, s in enumerate(stmts):
            if isinstance(s, tir.Evaluate) and is_call(s.value, "tirx.assume"):
                head = super().statements(stmts[: position + 1])
                with self.ranges.given(s.value.args[0]):
                    return [*head, *self.statements(stmts[position + 1 :])]
        return super().statements(stmts)


def _selected(value: Any) -> Any:
    """The value in which the analyzer looks at both ways of every condition; of a call it knows nothing."""
    if isinstance(value, int) or not any(is_call(n, "prim.if_then_else") for n in tile_ir.walk(value, ir.Call)):
        return value
    choose = lambda node: tir.Select(*node.args) if is_call(node, "prim.if_then_else") else node  # noqa: E731
    return tile_ir.map_nodes(value, (ir.Call, choose))


def assumed_multiples(func: tir.PrimFunc, kernel: tile_ir.Kernel) -> dict[Any, int]:
    """What `T.assume(n % c == 0)` says of dimensions, before the kernel or at its top: variable -> c."""
    found: dict[Any, int] = {}
    dims = set(shape_variables(func))
    for part in _assumed(func, kernel):
        said = _multiple_of(part)
        if said is not None and said[0] in dims:
            found[said[0]] = math.lcm(found.get(said[0], 1), said[1])
    return found


def assumed_bounds(func: tir.PrimFunc, kernel: tile_ir.Kernel) -> list[Any]:
    """What `T.assume` says, before the kernel or at its top, that bounds one dimension or scalar, as `n >= 256` or `n == 64`, or
    compares two of them, as `m <= n`."""
    sizes = {v for v in (*shape_variables(func), *func.params) if not tile_ir.is_buffer(v) and is_integer(v)}
    found: list[Any] = []
    for part in _assumed(func, kernel):
        names = set(tile_ir.walk(part, ir.Var))
        if not isinstance(part, _BOUNDS) or not names <= sizes or tile_ir.holds(tir.Evaluate(part), *_TURNING):
            continue
        if isinstance(part, ir.prim.EQ):
            if isinstance(part.a, ir.Var) and tile_ir.static(part.b) is not None:
                found += [part.a <= part.b, part.a >= part.b]
        elif len(names) == 1 or (isinstance(part.a, ir.Var) and isinstance(part.b, ir.Var)):
            found.append(part)
    return found


_BOUNDS = (ir.prim.LT, ir.prim.LE, ir.prim.GT, ir.prim.GE, ir.prim.EQ)
_TURNING = (ir.prim.FloorMod, ir.prim.Mod, ir.TensorLoad, ir.Call)  # what grows and shrinks as a size grows


def _assumed(func: tir.PrimFunc, kernel: tile_ir.Kernel) -> Iterator[Any]:
    """The conditions that stand in `T.assume` before the kernel or at its top."""
    for stmt in (*tile_ir.statements(func.body), *tile_ir.statements(kernel.body)):
        if isinstance(stmt, tir.Evaluate) and is_call(stmt.value, "tirx.assume"):
            yield from conjuncts(stmt.value.args[0])


def _multiple_of(condition: Any) -> tuple[Any, int] | None:
    """(n, c) of the condition `n % c == 0` with c above 1."""
    if not isinstance(condition, ir.prim.EQ) or not isinstance(condition.a, (ir.prim.FloorMod, ir.prim.Mod)):
        return None
    var, factor, rest = condition.a.a, tile_ir.static(condition.a.b), tile_ir.static(condition.b)
    return (var, factor) if isinstance(var, ir.Var) and factor is not None and factor > 1 and rest == 0 else None


def shape_variables(func: tir.PrimFunc) -> list[Any]:
    """The variables that parameters' shapes and strides mention, in order of first mention."""
    found: dict[Any, None] = {}
    for param in func.params:
        if tile_ir.is_buffer(param):
            for size in (*param.ty.shape, *(param.ty.strides or ())):
                for node in tile_ir.walk(size):
                    if isinstance(node, ir.Var):
                        found.setdefault(node)
    return list(found)


def is_integer(value: Any) -> bool:
    return str(value.ty).startswith(("int", "uint")) and "x" not in str(value.ty)
