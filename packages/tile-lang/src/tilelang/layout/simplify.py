"""Bounds and simplification of index expressions over a tile.

Only rules that hold for floor division are used, so a simplified expression has the same value at every point of
the tile. They keep the maps that `repeat`, `compose` and `reshape` build short enough to read and to compile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from tilelang.layout.expr import Const, IndexExpr, Op, Placeholder, Table, apply, lookup

Bounds: TypeAlias = "tuple[int, int] | None"  # inclusive; None: not known
_Terms: TypeAlias = "dict[tuple[object, ...], tuple[IndexExpr, int]]"  # key of a factor -> (factor, coefficient)


def bounds(expr: IndexExpr, extents: Mapping[str, int]) -> Bounds:
    """Inclusive bounds of `expr` where placeholder `name` lies in `[0, extents[name])`; may be wider than the truth."""
    if isinstance(expr, Const):
        return (expr.value, expr.value)
    if isinstance(expr, Placeholder):
        return (0, extents[expr.name] - 1) if expr.name in extents else None
    if isinstance(expr, Table):
        return (min(expr.values), max(expr.values))
    assert isinstance(expr, Op)
    if expr.op in ("<", "<=", ">", ">=", "==", "!="):
        return (0, 1)
    parts = [bounds(a, extents) for a in expr.args]
    if expr.op == "select":
        parts = parts[1:]
    (a, b) = parts
    if a is None or b is None:
        # `x % c` is bounded whatever x is.
        return (0, b[0] - 1) if expr.op == "%" and b is not None and b[0] == b[1] > 0 else None
    return _combine(expr.op, a, b)


def _combine(op: str, a: tuple[int, int], b: tuple[int, int]) -> Bounds:
    if op == "+":
        return (a[0] + b[0], a[1] + b[1])
    if op == "-":
        return (a[0] - b[1], a[1] - b[0])
    if op == "*":
        corners = [x * y for x in a for y in b]
        return (min(corners), max(corners))
    if op == "//" and b[0] > 0:
        corners = [x // y for x in a for y in b]
        return (min(corners), max(corners))
    if op == "%" and b[0] == b[1] > 0:
        return a if a[0] >= 0 and a[1] < b[0] else (0, b[0] - 1)
    if op == "min":
        return (min(a[0], b[0]), min(a[1], b[1]))
    if op == "max":
        return (max(a[0], b[0]), max(a[1], b[1]))
    if op == "select":
        return (min(a[0], b[0]), max(a[1], b[1]))
    if min(a[0], b[0]) < 0:
        return None
    if op == "&":
        return (0, min(a[1], b[1]))
    if op in ("|", "^"):
        return (0, (1 << max(a[1], b[1]).bit_length()) - 1)
    if op == ">>":
        return (a[0] >> b[1], a[1] >> b[0])
    if op == "<<" and b[1] < 64:
        return (a[0] << b[0], a[1] << b[1])
    return None


@dataclass(frozen=True)
class _Structure:
    """An expression that is equal to those of the same structure."""

    key: tuple[object, ...]
    expr: IndexExpr = field(compare=False)


def simplify(expr: IndexExpr, extents: Mapping[str, int]) -> IndexExpr:
    """An equal, usually shorter expression for placeholders in `[0, extents[name])`; the same if applied again."""
    return _simplified(_Structure(expr.key, expr), tuple(extents.items()))


@lru_cache(maxsize=4096)  # layouts of a kernel are proposed again and again, and those of other kernels are alike
def _simplified(structure: _Structure, sizes: tuple[tuple[str, int], ...]) -> IndexExpr:
    extents, expr, key = dict(sizes), structure.expr, structure.key
    while True:
        expr = _simplify_once(expr, extents)
        before, key = key, expr.key
        if key == before:
            return expr


def _simplify_once(expr: IndexExpr, extents: Mapping[str, int]) -> IndexExpr:
    if isinstance(expr, Table):
        return lookup(expr.values, _simplify_once(expr.index, extents))
    if not isinstance(expr, Op):
        return expr
    known = bounds(expr, extents)
    if known is not None and known[0] == known[1]:
        return Const(known[0])
    args = [_simplify_once(a, extents) for a in expr.args]
    simple = apply(expr.op, *args)
    if not isinstance(simple, Op):
        return simple
    if simple.op in ("+", "-", "*"):
        return _from_terms(_merge_quotient_and_remainder(_terms(simple)))
    if simple.op in ("//", "%"):
        divisor = simple.args[1]
        if isinstance(divisor, Const) and divisor.value > 0:
            return _divide(simple.op, simple.args[0], divisor.value, extents)
    return simple


def affine_form(expr: IndexExpr, names: Sequence[str]) -> tuple[tuple[int, ...], int] | None:
    """`(strides, offset)` if `expr` is `sum(stride * name) + offset`, else None."""
    strides = dict.fromkeys(names, 0)
    offset = 0
    for factor, coefficient in _terms(expr).values():
        if isinstance(factor, Const):
            offset += coefficient
        elif isinstance(factor, Placeholder) and factor.name in strides:
            strides[factor.name] += coefficient
        else:
            return None
    return tuple(strides.values()), offset


def _terms(expr: IndexExpr) -> _Terms:
    """`expr` as a sum of factor * coefficient; the constant is the factor 1."""
    total: _Terms = {}
    _add_terms(expr, 1, total)
    return {key: term for key, term in total.items() if term[1]}


def _add_terms(expr: IndexExpr, scale: int, total: _Terms) -> None:
    if isinstance(expr, Op) and expr.op in ("+", "-"):
        _add_terms(expr.args[0], scale, total)
        _add_terms(expr.args[1], scale if expr.op == "+" else -scale, total)
        return
    if isinstance(expr, Op) and expr.op == "*" and isinstance(expr.args[1], Const):
        _add_terms(expr.args[0], scale * expr.args[1].value, total)
        return
    factor: IndexExpr = expr
    if isinstance(expr, Const):
        factor, scale = Const(1), scale * expr.value
    total[factor.key] = (factor, scale + total.get(factor.key, (factor, 0))[1])


def _from_terms(terms: _Terms) -> IndexExpr:
    """The sum, in the order of first appearance, the constant last, negative terms subtracted."""
    total: IndexExpr = Const(0)
    ordered = sorted(terms.values(), key=lambda term: (isinstance(term[0], Const), term[1] < 0))
    for factor, coefficient in ordered:
        scaled = apply("*", factor, abs(coefficient))
        if isinstance(total, Const) and coefficient < 0:
            total = apply("+", apply("*", factor, coefficient), total)
        else:
            total = apply("+" if coefficient > 0 else "-", total, scaled)
    return total


def _merge_quotient_and_remainder(terms: _Terms) -> _Terms:
    """`x // c * (c * s) + x % c * s` -> `x * s`."""
    for key, (factor, scale) in list(terms.items()):
        if not (isinstance(factor, Op) and factor.op == "%" and isinstance(factor.args[1], Const)):
            continue
        value, divisor = factor.args
        quotient_key = apply("//", value, divisor).key
        quotient = terms.get(quotient_key)
        if quotient is not None and quotient[1] == scale * factor.args[1].value:
            merged = {k: t for k, t in terms.items() if k not in (key, quotient_key)}
            rest: _Terms = {}
            _add_terms(value, scale, rest)
            for k, (f, s) in rest.items():
                merged[k] = (f, s + merged.get(k, (f, 0))[1])
            return _merge_quotient_and_remainder({k: t for k, t in merged.items() if t[1]})
    return terms


def _divide(op: str, value: IndexExpr, divisor: int, extents: Mapping[str, int]) -> IndexExpr:
    """`(whole * divisor + rest) // divisor` -> `whole + rest // divisor`, and the same for `%`."""
    if isinstance(value, Op) and isinstance(value.args[-1], Const):
        inner = value.args[-1].value
        if op == "//" and value.op == "//" and inner > 0:
            return _divide("//", value.args[0], inner * divisor, extents)
        if op == "%" and value.op == "%" and inner > 0 and inner % divisor == 0:
            return _divide("%", value.args[0], divisor, extents)
    terms = _terms(value)
    whole = {key: (f, s // divisor) for key, (f, s) in terms.items() if s % divisor == 0}
    rest = _from_terms({key: term for key, term in terms.items() if key not in whole})
    known = bounds(rest, extents)
    if known is not None and known[0] // divisor == known[1] // divisor:
        step = known[0] // divisor
        if op == "//":
            return _from_terms(_terms(apply("+", _from_terms(whole), step)))
        return _from_terms(_terms(apply("-", rest, step * divisor)))
    if op == "%":
        return apply("%", rest, divisor)
    return _from_terms(_terms(apply("+", _from_terms(whole), apply("//", rest, divisor))))
