"""From a table of values back to an index expression.

Inverses and inferred register numbers are found by evaluation, as tables. Most of them are sums of digits,
`x // d % r * stride`, one sum per index; those become formulas again, which print and compile well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilelang.layout.evaluation import linear_index, over_tile
from tilelang.layout.expr import Const, IndexExpr, Placeholder, as_expr, lookup
from tilelang.layout.simplify import simplify


def expr_of_values(values: npt.NDArray[np.int64], variables: Sequence[Placeholder]) -> IndexExpr:
    """An expression in `variables` (one per axis) that has `values` over the whole tile.

    A sum of digits when there is one, else a lookup in the table itself; never fails.
    """
    formula = sum_of_digits(values, variables)
    if formula is not None:
        return formula
    return lookup(values.ravel().tolist(), linear_index(list(variables), values.shape))


def sum_of_digits(values: npt.NDArray[np.int64], variables: Sequence[Placeholder]) -> IndexExpr | None:
    """A sum over the variables of `x // d % r * stride`, plus a constant, that has `values`; None if there is none."""
    origin = int(values.flat[0])
    total: IndexExpr = Const(origin)
    for axis, variable in enumerate(variables):
        line: Any = values[tuple(slice(None) if n == axis else 0 for n in range(values.ndim))]
        total = total + _digits(np.asarray(line) - origin, variable)
    extents = {v.name: n for v, n in zip(variables, values.shape, strict=True)}
    total = simplify(total, extents)
    return total if np.array_equal(over_tile(total, extents), values) else None


def _digits(line: npt.NDArray[np.int64], variable: Placeholder) -> IndexExpr:
    """The digits of one index, found greedily: each digit is the longest run of equal steps that divides the rest.

    The result is a candidate; `sum_of_digits` checks it.
    """
    extent = len(line)
    total: IndexExpr = Const(0)
    unit = 1
    while unit < extent:
        remaining = extent // unit
        stride = int(line[unit])
        run = np.flatnonzero(line[::unit] != stride * np.arange(len(line[::unit])))
        equal = int(run[0]) if len(run) else remaining
        radix = next(r for r in range(min(equal, remaining), 0, -1) if remaining % r == 0)
        if radix == 1:
            return as_expr(0)
        total = total + variable // unit % radix * stride
        unit *= radix
    return total
