"""The expression algebra: it means what Python means, prints as Python, and survives JSON and simplification."""

from __future__ import annotations

import json
import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilelang.layout import (
    IndexExpr,
    bounds,
    expr_from_json,
    lookup,
    maximum,
    minimum,
    placeholders,
    select,
    simplify,
    substitute,
)
from tilelang.layout.expr import Const, as_expr
from tilelang.layout.simplify import affine_form

ROW, COLUMN = placeholders(2)
EXTENTS = {"i": 6, "j": 5}
PYTHON = {"min": min, "max": max, "select": lambda c, a, b: a if c else b, "lookup": lambda t, n: t[n]}


def expressions() -> st.SearchStrategy[IndexExpr]:
    """Expressions of any sign in i and j; divisors and shift counts are constants, as layouts use them."""

    def extend(inner: st.SearchStrategy[IndexExpr]) -> st.SearchStrategy[IndexExpr]:
        pair = st.tuples(inner, inner)
        small = st.integers(1, 9)
        symmetric = [operator.add, operator.sub, operator.mul, operator.xor, operator.and_, operator.or_]
        symmetric += [operator.lt, operator.eq, minimum, maximum]
        with_number = [operator.floordiv, operator.mod, operator.mul, operator.rshift]
        return st.one_of(
            st.builds(lambda f, ab: f(*ab), st.sampled_from(symmetric), pair),
            st.builds(lambda f, a, n: f(a, n), st.sampled_from(with_number), inner, small),
            st.builds(lambda a, n: a << n, inner, st.integers(0, 3)),
            st.builds(lambda c, ab: select(c < 2, *ab), inner, pair),
            st.builds(lambda a: lookup([3, 1, 2, 7], a % 4), inner),
        )

    leaves = st.one_of(st.sampled_from([ROW, COLUMN]), st.integers(-8, 40).map(Const))
    return st.recursive(leaves, extend, max_leaves=7)


def points() -> list[tuple[int, int]]:
    return [(i, j) for i in range(EXTENTS["i"]) for j in range(EXTENTS["j"])]


@given(expressions())
def test_numpy_and_ints_agree_with_the_printed_text(expr: IndexExpr) -> None:
    i, j = np.ogrid[:6, :5]
    whole = np.broadcast_to(expr.evaluate({"i": i, "j": j}), (6, 5))
    text = str(expr)
    for a, b in points():
        assert expr.evaluate({"i": a, "j": b}) == whole[a, b]
        assert int(eval(text, PYTHON, {"i": a, "j": b})) == whole[a, b], text


@given(expressions())
def test_json_keeps_the_tree(expr: IndexExpr) -> None:
    assert expr_from_json(json.loads(json.dumps(expr.to_json()))).key == expr.key


@given(expressions())
@settings(max_examples=200)
def test_simplify_keeps_every_value_and_bounds_hold(expr: IndexExpr) -> None:
    simple = simplify(expr, EXTENTS)
    values = [expr.evaluate({"i": a, "j": b}) for a, b in points()]
    assert [simple.evaluate({"i": a, "j": b}) for a, b in points()] == values, simple
    for known in (bounds(expr, EXTENTS), bounds(simple, EXTENTS)):
        assert known is None or (known[0] <= min(values) and max(values) <= known[1])


@given(expressions(), expressions())
def test_substitution_is_composition(outer: IndexExpr, inner: IndexExpr) -> None:
    combined = substitute(outer, {"i": inner})
    for a, b in points()[::7]:
        assert combined.evaluate({"i": a, "j": b}) == outer.evaluate({"i": inner.evaluate({"i": a, "j": b}), "j": b})


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        ((ROW * 8 + COLUMN) // 8, "i + j // 8"),
        ((ROW * 16 + COLUMN % 16) % 16, "j % 16"),
        (ROW // 4 * 4 + ROW % 4, "i"),
        (ROW // 2 // 3, "i // 6"),
        (ROW % 8 % 4, "i % 4"),
        (COLUMN + ROW - COLUMN, "i"),
        (2 * ROW + 3 + ROW, "i * 3 + 3"),
        (ROW * 0 + 5, "5"),
        (COLUMN ^ (ROW & 3), "j ^ (i & 3)"),
        (COLUMN - (ROW - 1), "j - i + 1"),
    ],
)
def test_simplified_form(expr: IndexExpr, text: str) -> None:
    assert str(simplify(expr, {"i": 32, "j": 32})) == text


def test_affine_form_reads_strides_and_offset() -> None:
    assert affine_form(ROW * 8 + COLUMN * 2 + 3 + ROW, ["i", "j"]) == ((9, 2), 3)
    assert affine_form(ROW // 2, ["i"]) is None
    assert affine_form(as_expr(4), ["i"]) == ((0,), 4)


def test_numpy_scalars_on_the_left_build_expressions() -> None:
    assert str(np.int64(8) * ROW + np.int32(1)) == "i * 8 + 1"


def test_replaced_operators_reach_a_compilers_own_values() -> None:
    expr = minimum(ROW, lookup([4, 5], COLUMN))
    words = expr.evaluate(
        {"i": "x", "j": "y"},
        operators={"min": lambda a, b: f"min({a}, {b})", "lookup": lambda table, n: f"{list(table)}[{n}]"},
    )
    assert words == "min(x, [4, 5][y])"


def test_errors_say_what_to_write_instead() -> None:
    with pytest.raises(TypeError, match=r"divides i with '/'.*Use '//' instead"):
        ROW / 2
    with pytest.raises(TypeError, match=r"tests 'i < 2' as true or false.*select\(condition, a, b\)"):
        bool(ROW < 2)
    with pytest.raises(TypeError, match=r"minimum\(a, b\)"):
        min(ROW, 3)
    with pytest.raises(TypeError, match=r"needs 'i' as a plain number.*lookup\(table, index\)"):
        [1, 2, 3][ROW]
    with pytest.raises(TypeError, match=r"1.5 of type float was found"):
        ROW + 1.5
    with pytest.raises(ValueError, match=r"computes 'i % 0'"):
        ROW % 0
    for broken in (["?", 1], ["+", 1], 1.5, None, [], ["lookup", ["a"], 0], True):
        with pytest.raises(ValueError, match="stored"):
            expr_from_json(broken)
