from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tile_runtime.errors import ExpressionError
from tile_runtime.expression import MAX_DEPTH, Names, evaluate, references, to_python, to_text, validate

NAMES = Names(frozenset({"m", "n"}), frozenset({"s"}), frozenset({"A"}))
DIMS, PARAMS, ADDRESSES = {"m": 7, "n": 0}, {"s": -3}, {"A": 64}

leaves = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-3, 3),
    st.sampled_from([["dim", "m"], ["dim", "n"], ["param", "s"], ["address", "A"]]),
)


def _nodes(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def of(operators: list[str], least: int, most: int) -> st.SearchStrategy[Any]:
        operands = st.lists(inner, min_size=least, max_size=most)
        return st.tuples(st.sampled_from(operators), operands).map(lambda t: [t[0], *t[1]])

    return st.one_of(
        of(["+", "*", "min", "max", "and", "or"], 2, 3),
        of(["-", "floordiv", "floormod", "ceildiv", "==", "!=", "<", "<=", ">", ">="], 2, 2),
        of(["not"], 1, 1),
        of(["select"], 3, 3),
    )


expressions = st.recursive(leaves, _nodes, max_leaves=12)


def _divides_by_constant_zero(node: Any) -> bool:
    if isinstance(node, int) or node[0] in ("dim", "param", "address"):
        return False
    return (node[0] in ("floordiv", "floormod", "ceildiv") and node[2] == 0) or any(
        map(_divides_by_constant_zero, node[1:])
    )


@given(expressions)
def test_generated_python_means_what_evaluate_says(expression: Any) -> None:
    if _divides_by_constant_zero(expression):
        with pytest.raises(ExpressionError, match="constant zero"):
            validate(expression, NAMES)
        return
    validate(expression, NAMES)
    tables = {"dim": DIMS, "param": PARAMS, "address": ADDRESSES}
    text = to_python(expression, lambda operator, name: f"({tables[operator][name]})")
    try:
        expected = evaluate(expression, DIMS, PARAMS, ADDRESSES)
    except ExpressionError:
        with pytest.raises(ZeroDivisionError):
            eval(text)
        return
    found = eval(text)
    assert int(found) == expected
    assert isinstance(to_text(expression), str)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (5, 5),
        (["ceildiv", ["dim", "m"], 4], 2),
        (["ceildiv", -7, 2], -3),
        (["floordiv", ["param", "s"], 2], -2),
        (["floormod", ["param", "s"], 2], 1),
        (["and", 5, 7], 1),
        (["or", 0, 7], 1),
        (["not", 5], 0),
        (["select", ["dim", "n"], ["floordiv", 1, ["dim", "n"]], 9], 9),
        (["and", ["dim", "n"], ["floordiv", 1, ["dim", "n"]]], 0),
    ],
)
def test_operators(expression: Any, value: int) -> None:
    validate(expression, NAMES)
    assert evaluate(expression, DIMS, PARAMS) == value


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (True, "expected an integer or a list"),
        (1.5, "expected an integer or a list"),
        ("n", "expected an integer or a list"),
        ([], "expected an integer or a list"),
        (None, "expected an integer or a list"),
        ([["+"], 1, 2], "expected an integer or a list"),
        (["__import__", "os"], "unknown operator '__import__'"),
        (["const", 5], "unknown operator 'const'"),
        (["dim", "q"], "dim 'q' is not one that may be used here (known: m, n)"),
        (["dim"], "['dim', name] expected"),
        (["dim", ["dim", "m"]], "['dim', name] expected"),
        (["+", 1], "takes two or more operands, found 1"),
        (["-", 1, 2, 3], "takes 2 operand(s), found 3"),
        (["not"], "takes 1 operand(s)"),
        (["floordiv", 1, 0], "division by the constant zero"),
        (2**63, "does not fit int64"),
        (["+", 1, -(2**63) - 1], "does not fit int64"),
    ],
)
def test_anything_else_is_refused_with_its_reason(expression: Any, text: str) -> None:
    with pytest.raises(ExpressionError, match="TLR002") as caught:
        validate(expression, NAMES)
    assert text in str(caught.value)


def test_size_and_depth_are_limited() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH - 1):
        deep = ["ceildiv", deep, 3]
    validate(deep)
    assert eval(to_python(deep, str)) == evaluate(deep)  # the limit is one that Python can still parse
    with pytest.raises(ExpressionError, match="nested deeper"):
        validate(["not", deep])
    with pytest.raises(ExpressionError, match="nodes"):
        validate(["+", *[1] * 5000])


def test_division_by_zero_names_the_expression() -> None:
    with pytest.raises(ExpressionError, match=r"division by zero in 7 // n"):
        evaluate(["floordiv", 7, ["dim", "n"]], DIMS)


def test_references_and_text() -> None:
    expression = ["*", ["ceildiv", ["dim", "m"], 128], ["select", ["param", "s"], ["dim", "n"], 2]]
    assert references(expression, "dim") == {"m", "n"}
    assert references(expression, "param") == {"s"}
    assert to_text(expression) == "ceildiv(m, 128) * select(s, n, 2)"


M, N = ["dim", "m"], ["dim", "n"]


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (["and", ["==", ["floormod", M, 8], 0], ["<=", ["*", M, N], 9]], "m % 8 == 0 and m * n <= 9"),
        (["floordiv", ["+", M, 7], 8], "(m + 7) // 8"),
        (["-", ["-", M, N], 1], "m - n - 1"),
        (["-", M, ["-", N, 1]], "m - (n - 1)"),
        (["*", M, ["floordiv", N, 2]], "m * (n // 2)"),
        (["and", ["or", M, N], 1], "(m or n) and 1"),
        (["not", ["==", ["address", "A"], 0]], "not (address(A) == 0)"),
        (["<", ["<", M, N], 1], "(m < n) < 1"),
    ],
)
def test_text_has_the_parentheses_that_it_needs(expression: Any, text: str) -> None:
    assert to_text(expression) == text
