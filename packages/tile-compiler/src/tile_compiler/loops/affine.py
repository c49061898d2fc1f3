"""How an expression depends on one loop variable."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from tvm import ir, sym
from tvm import tirx as tir

from tile_compiler.ranges import is_integer
from tilelang.ir import tile_ir

Pattern = Literal["uniform", "contiguous", "strided"]


def depends(node: Any, variables: set[Any]) -> bool:
    """Whether `node` mentions one of `variables`."""
    return any(n in variables for n in tile_ir.walk(node, ir.Var))


def linear(value: Any, var: Any) -> tuple[int, Any] | None:
    """(c, base) with value == c * var + base and base free of `var`, or None.

    Index arithmetic does not wrap, so a conversion to a wider integer type is moved to the variables first.
    """
    if any(isinstance(n, ir.prim.Cast) and depends(n, {var}) for n in tile_ir.walk(value)):
        wide = tir.Var(var.name, str(value.ty))
        value, var = _widened(value, {var: wide}), wide
    found = sym.detect_linear_equation(value, [var])
    if not found:
        return None
    factor = tile_ir.static(sym.Analyzer().simplify(found[0]))
    return None if factor is None else (factor, found[1])


def _widened(value: Any, wide: dict[Any, Any]) -> Any:
    """`value` with a variable replaced by its counterpart of a wider type, in sums and products around it."""
    if isinstance(value, ir.Var):
        return wide.get(value, value)
    if isinstance(value, ir.prim.Cast) and is_integer(value.value) and _bits(value) >= _bits(value.value):
        inner = _widened(value.value, wide)
        return inner if str(inner.ty) == str(value.ty) else tir.Cast(str(value.ty), inner)
    if isinstance(value, (ir.prim.Add, ir.prim.Sub, ir.prim.Mul)):
        a, b = _widened(value.a, wide), _widened(value.b, wide)
        return a + b if isinstance(value, ir.prim.Add) else a - b if isinstance(value, ir.prim.Sub) else a * b
    return value


def _bits(value: Any) -> int:
    return int(str(value.ty).removeprefix("u").removeprefix("int"))


def pattern(buffer: Any, indices: list[Any], var: Any) -> Pattern:
    """How an access moves when `var` grows by one: not at all, to the next element, or elsewhere."""
    moving = [d for d, index in enumerate(indices) if depends(index, {var})]
    if not moving:
        return "uniform"
    strides = list(buffer.ty.strides or ())
    if moving == [len(indices) - 1] and (not strides or tile_ir.static(strides[-1]) == 1):
        found = linear(indices[-1], var)
        if found is not None and found[0] == 1:
            return "contiguous"
    return "strided"


@dataclass(frozen=True)
class Threshold:
    """`var < bound` (upper) or `var >= bound` (lower): what a comparison that is affine in `var` says about it."""

    upper: bool
    bound: Any


def threshold(condition: Any, var: Any) -> Threshold | None:
    """The threshold on `var` that an integer comparison is equal to, or None."""
    kind = type(condition).__name__
    if kind not in ("LT", "LE", "GT", "GE") or not is_integer(condition.a):
        return None
    found = linear(condition.a - condition.b, var)
    if found is None or found[0] == 0:
        return None
    factor, base = found
    if kind in ("GT", "GE"):  # a > b is -a < -b
        factor, base = -factor, 0 - base
    if kind in ("LT", "GT"):  # c * var + base < 0 is c * var + base + 1 <= 0
        base = base + 1
    # now: factor * var + base <= 0
    if factor > 0:
        return Threshold(True, _floordiv(0 - base, factor) + 1)
    return Threshold(False, 0 - _floordiv(0 - base, -factor))


def _floordiv(value: Any, divisor: int) -> Any:
    return value if divisor == 1 else tir.floordiv(value, divisor)


def extreme(index: Any, extents: dict[Any, int], most: bool) -> Any | None:
    """The largest (or least) value of an index over a nest's iterations; None if it is not linear in its variables."""
    for var, extent in extents.items():
        if not depends(index, {var}):
            continue
        found = linear(index, var)
        if found is None:
            return None
        factor, rest = found
        index = rest + tir.const(factor * (extent - 1), str(rest.ty)) if (factor > 0) == most else rest
    return index


def period(index: Any, var: Any) -> int:
    """After how many steps of `var` an index returns to the same version: what its small moduli have in common."""
    if index is None:
        return 1
    found = [
        int(n.b.value)
        for n in tile_ir.walk(tir.Evaluate(index))
        if type(n).__name__ == "FloorMod" and isinstance(n.b, tir.IntImm) and n.b.value <= 16 and depends(n.a, {var})
    ]
    return math.lcm(*found)
