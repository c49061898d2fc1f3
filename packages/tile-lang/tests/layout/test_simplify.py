"""Simplified expressions are found once for each structure and extents."""

from __future__ import annotations

from tilelang.layout import IndexExpr, placeholders
from tilelang.layout.simplify import simplify


def halves() -> IndexExpr:
    (i,) = placeholders(1)
    return i // 4 * 4 + i % 4


def test_equal_expressions_have_one_simplified_form() -> None:
    found = simplify(halves(), {"i": 16})
    assert str(found) == "i"
    assert simplify(halves(), {"i": 16}) is found


def test_extents_and_constants_tell_them_apart() -> None:
    (i,) = placeholders(1)
    assert [str(simplify(i // 8, {"i": n})) for n in (8, 9)] == ["0", "i // 8"]
    assert [str(simplify(i % n, {"i": 8})) for n in (4, 8)] == ["i % 4", "i"]
