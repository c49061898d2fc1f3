"""Index expressions of the layout algebra and of tirx, in both directions, and numbers over whole tiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import ir
from tvm import tirx as tir

from tilelang.ir import tile_ir
from tilelang.layout import Const, IndexExpr, Table, maximum, minimum, placeholders
from tilelang.layout.evaluation import over_tile

Ints = npt.NDArray[np.int64]

_BINARY = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "Min": minimum,
    "Max": maximum,
    "BitwiseXor": lambda a, b: a ^ b,
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseOr": lambda a, b: a | b,
    "LShift": lambda a, b: a << b,
    "RShift": lambda a, b: a >> b,
}


def from_tir(node: Any, variables: Mapping[Any, IndexExpr]) -> IndexExpr | None:
    """A tirx integer expression over `variables` in the layout algebra; None if it mentions anything else."""
    number = tile_ir.static(node)
    if number is not None:
        return Const(number)
    if isinstance(node, ir.Var):
        return variables.get(node)
    if isinstance(node, ir.prim.Cast):
        return from_tir(node.value, variables)
    rule = _BINARY.get(type(node).__name__)
    if rule is None:
        return None
    a, b = from_tir(node.a, variables), from_tir(node.b, variables)
    if a is None or b is None or (type(node).__name__ in ("FloorDiv", "FloorMod") and not isinstance(b, Const)):
        return None
    return rule(a, b)


def _select(condition: Any, then: Any, otherwise: Any) -> Any:
    return tir.Select(_truth(condition), _as_tir(then), _as_tir(otherwise))


def _truth(value: Any) -> Any:
    return value if isinstance(value, (bool, int)) or str(value.ty) == "bool" else value != 0


def _as_tir(value: Any) -> Any:
    return tir.const(value, "int32") if isinstance(value, int) else value


_TIR_OPERATORS: dict[str, Callable[..., Any]] = {
    "select": _select,
    "min": lambda a, b: tir.min(_as_tir(a), _as_tir(b)),
    "max": lambda a, b: tir.max(_as_tir(a), _as_tir(b)),
    "//": lambda a, b: a // b if isinstance(a, int) and isinstance(b, int) else tir.floordiv(_as_tir(a), _as_tir(b)),
    "%": lambda a, b: a % b if isinstance(a, int) and isinstance(b, int) else tir.floormod(_as_tir(a), _as_tir(b)),
}


def to_tir(expr: IndexExpr, values: Mapping[str, Any]) -> Any:
    """An index expression as tirx; placeholders take their values from `values`."""
    return _as_tir(expr.evaluate(dict(values), _TIR_OPERATORS))


def is_formula(expr: IndexExpr) -> bool:
    """Whether the expression needs no table of constants."""
    if isinstance(expr, Table):
        return False
    return all(is_formula(a) for a in getattr(expr, "args", ()))


def names(rank: int) -> tuple[str, ...]:
    """The placeholders' names of a layout of this rank."""
    return tuple(p.name for p in placeholders(rank))


def tile_values(exprs: Sequence[IndexExpr], shape: Sequence[int]) -> list[Ints]:
    """Each expression at every point of a tile."""
    extents = dict(zip(names(len(shape)), shape))
    return [over_tile(e, extents) for e in exprs]
