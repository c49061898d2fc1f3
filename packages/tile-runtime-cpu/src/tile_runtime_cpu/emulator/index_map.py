"""Index maps of the compiler (`debug.json`), evaluated with numpy.

    map ::= int | name | [operator, map, ...] | ["lookup", [int, ...], map]

The algebra of `tilelang.layout`, in which division and remainder round towards minus infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]

_MEANING: dict[str, Callable[..., Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "&": np.bitwise_and,
    "<<": np.left_shift,
    ">>": np.right_shift,
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "//": np.floor_divide,
    "%": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    "select": lambda condition, yes, no: np.where(np.asarray(condition) != 0, yes, no),
}


def evaluate(expression: Any, values: Mapping[str, Ints]) -> Ints:
    """The map's value where each name has `values[name]`; arrays broadcast."""
    if isinstance(expression, int):
        return np.asarray(expression, np.int64)
    if isinstance(expression, str):
        return values[expression]
    operator, *arguments = expression
    if operator == "lookup":
        return np.asarray(arguments[0], np.int64)[evaluate(arguments[1], values)]
    return np.asarray(_MEANING[operator](*(evaluate(a, values) for a in arguments)), np.int64)


def over_shape(expression: Any, variables: list[str], shape: list[int], **more: Ints) -> Ints:
    """The map at every point of a tile: an array of this shape."""
    points = {name: grid.astype(np.int64) for name, grid in zip(variables, np.indices(shape))}
    return np.broadcast_to(evaluate(expression, {**points, **more}), shape)
