"""Literals of a kernel: their types, their constants, and what operators mean for numbers alone."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.ir.dtypes import DType

COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
SYMBOL = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}


def is_literal(x: Any) -> bool:
    """Whether `x` is a Python (or numpy) number, a constant of the kernel."""
    return isinstance(x, (bool, int, float, np.generic))


def constant(value: Any, dtype: DType) -> Any:
    """A literal as a tirx constant; integers wrap into the type, as conversions do in C."""
    from tvm import tirx

    storage = dtype.scalar.storage
    if storage.kind == "bool":
        node = tirx.const(bool(value), "bool")
    elif storage.is_float:
        node = tirx.FloatImm(str(storage), float(value))
    else:
        bits = storage.bits
        value = _saturated(float(value), storage) if isinstance(value, (float, np.floating)) else int(value)
        value &= (1 << bits) - 1
        if storage.kind == "int" and value >= 1 << (bits - 1):
            value -= 1 << bits
        if storage == "uint64" and value >= 1 << 63:
            return tirx.Cast("uint64", tirx.const(value - (1 << 64), "int64"))
        node = tirx.const(value, str(storage))
    return node if dtype.lanes == 1 else tirx.Broadcast(node, dtype.lanes)


def _saturated(value: float, dtype: DType) -> int:
    """A float as an integer of the type: truncated, then limited to its range; NaN is 0."""
    if math.isnan(value):
        return 0
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    high = low + (1 << dtype.bits) - 1
    return min(max(math.trunc(value), low), high) if math.isfinite(value) else (high if value > 0 else low)


def literal_dtype(value: Any) -> DType:
    """The type of a literal that meets no run-time operand: bool, int32 (int64 if it must) or float32."""
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return DType("bool")
    if isinstance(value, numbers.Integral):
        return DType("int32") if -(2**31) <= int(value) < 2**31 else DType("int64")
    return DType("float32")


def fits(value: int, dtype: DType) -> bool:
    """Whether a literal keeps its value in an operand's type."""
    # A negative literal meets an unsigned operand as its two's complement, as in C (x ^ -1 inverts).
    return -(1 << (dtype.bits - 1)) <= value < (1 << dtype.bits)
