"""How two partial results of a reduction or a scan become one, and where they start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx as tir

from tile_compiler.rewrite import substitute
from tilelang.ir.dtypes import dtype_of

_UNSIGNED_MAX = {8: 2**8 - 1, 16: 2**16 - 1, 32: 2**32 - 1, 64: 2**64 - 1}


@dataclass(frozen=True)
class Combine:
    """`step(partial, element)` in `dtype`, from `identity`; `prepare` is applied to each element first."""

    dtype: str
    identity: Any
    step: Callable[[Any, Any], Any]
    prepare: Callable[[Any], Any] = lambda value: value


def accumulator_type(src: str, dst: str, kind: str = "sum") -> str:
    """The type that partial results have: float32 at least for floats, 32 bits at least for integers.

    Signs that differ, and |-2**31|, need 64 bits.
    """
    source, result = dtype_of(src), dtype_of(dst)
    if result.is_float:
        return "float64" if "float64" in (src, dst) else "float32"
    if result.kind == "bool" and not source.is_integer:
        return "int32"
    same_sign = not source.is_integer or source.kind == result.kind
    bits = max(32, result.bits, source.bits if source.is_integer else 0)
    if (kind == "absmax" and result.kind == "int") or not same_sign:
        bits = 64 if not same_sign or source.bits >= 32 else bits
    return f"{'uint' if same_sign and result.kind == 'uint' else 'int'}{bits}"


# Kinds that users added: name -> (accumulator type, result type) -> how partial results combine.
ADDED: dict[str, Callable[[str, str], Combine]] = {}


def combine_of(kind: str, dtype: str, result: str, nan_propagate: bool = False) -> Combine:
    """The combination of a named kind, in accumulator type `dtype`, for a result of type `result`."""
    if kind in ADDED:
        return ADDED[kind](dtype, result)
    zero = tir.const(0, dtype)
    if kind in ("sum", "abssum"):
        return Combine(dtype, zero, lambda a, x: a + x, _absolute(dtype) if kind == "abssum" else _same)
    if kind == "prod":
        return Combine(dtype, tir.const(1, dtype), lambda a, x: a * x)
    if kind in ("max", "absmax"):
        start = zero if kind == "absmax" else _limit(result, dtype, smallest=True)
        step = _pick(nan_propagate and dtype.startswith("float"), tir.max, lambda a, x: x > a)
        return Combine(dtype, start, step, _absolute(dtype) if kind == "absmax" else _same)
    if kind == "min":
        step = _pick(nan_propagate and dtype.startswith("float"), tir.min, lambda a, x: x < a)
        return Combine(dtype, _limit(result, dtype, smallest=False), step)
    bits = {"bitand": tir.bitwise_and, "bitor": tir.bitwise_or, "bitxor": tir.bitwise_xor}[kind]
    ones = (
        tir.const(-1, dtype) if not dtype.startswith("uint") else tir.const(_UNSIGNED_MAX[dtype_of(dtype).bits], dtype)
    )
    return Combine(dtype, ones if kind == "bitand" else zero, lambda a, x: bits(a, x))


def custom_combine(lhs: Any, rhs: Any, combined: Any, identity: Any) -> Combine:
    """The combination that a user wrote as an expression over `lhs` and `rhs`."""
    return Combine(str(lhs.ty), identity, lambda a, x: substitute(combined, {lhs: a, rhs: x}))


def _same(value: Any) -> Any:
    return value


def _absolute(dtype: str) -> Callable[[Any], Any]:
    if dtype.startswith("uint"):
        return _same
    return lambda value: (
        tir.max(value, tir.Sub(tir.const(0, dtype), value)) if dtype.startswith("int") else tir.abs(value)
    )


def _pick(propagate: bool, plain: Callable[[Any, Any], Any], better: Callable[[Any, Any], Any]) -> Any:
    """max or min. `max(x, a)` gives a when x is NaN (one vmaxps); with `propagate` a NaN wins and stays."""
    if not propagate:
        return lambda a, x: plain(x, a)
    return lambda a, x: tir.Select(tir.Or(better(a, x), tir.isnan(x)), x, a)


def _limit(result: str, dtype: str, *, smallest: bool) -> Any:
    kind = dtype_of(result)
    if kind.is_float:
        return tir.const(float("-inf") if smallest else float("inf"), dtype)
    if kind.kind == "bool":
        return tir.const(0 if smallest else 1, dtype)
    if kind.kind == "uint":
        return tir.const(0 if smallest else 2**kind.bits - 1, dtype)
    return tir.const(-(2 ** (kind.bits - 1)) if smallest else 2 ** (kind.bits - 1) - 1, dtype)
