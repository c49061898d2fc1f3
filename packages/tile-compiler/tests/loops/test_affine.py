"""Thresholds and access patterns of one loop variable."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import pytest
from tvm import sym
from tvm import tirx as tir

from tile_compiler.loops.affine import pattern, threshold

COMPARISONS = (operator.lt, operator.le, operator.gt, operator.ge)


@pytest.mark.parametrize(("factor", "offset"), [*itertools.product((-3, -1, 1, 2, 5), (-7, 0, 4))])
@pytest.mark.parametrize("compare", COMPARISONS)
def test_a_threshold_says_what_its_comparison_says(compare: Any, factor: int, offset: int) -> None:
    var = tir.Var("j", "int32")
    found = threshold(compare(var * factor + offset, 6), var)
    assert found is not None
    bound = int(sym.Analyzer().simplify(found.bound))
    for j in range(-20, 20):
        assert compare(j * factor + offset, 6) == (j < bound if found.upper else j >= bound), (j, bound)


def test_comparisons_without_a_threshold() -> None:
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    for condition in (tir.EQ(j, 3), j // 2 < 3, i < 3, j * i < 3, tir.Or(j < 1, j > 5)):
        assert threshold(condition, j) is None


def test_a_size_of_64_bits() -> None:
    j, n = tir.Var("j", "int32"), tir.Var("n", "int64")
    found = threshold(tir.Cast("int64", tir.Var("b", "int32") * 128 + j) < n, j)
    assert found is not None
    assert found.upper
    assert str(found.bound.ty) == "int64"


def test_patterns() -> None:
    i, j = tir.Var("i", "int32"), tir.Var("j", "int32")
    buffer = tir.decl_buffer((8, 64), "float32", name="A", layout=None)
    strided = tir.decl_buffer((8, 64), "float32", name="B", strides=[128, 2], layout=None)
    assert pattern(buffer, [i, j], i) == "strided"
    assert pattern(buffer, [i, j + i * 0 + 5], j) == "contiguous"
    assert pattern(buffer, [i, i + 1], j) == "uniform"
    assert pattern(buffer, [i, j // 2], j) == "strided"
    assert pattern(buffer, [i, 63 - j], j) == "strided"
    assert pattern(strided, [i, j], j) == "strided"
