"""Arithmetic in the declared element types: conversion, rounding after each step, wrapping, bit patterns.

Values are numpy arrays of `DType.as_numpy()`. Narrow floats (under 32 bits) are computed in float32 and rounded
once, integers under a byte in int64 and wrapped; everything else is numpy's own arithmetic.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilelang.ir.dtypes import DType, dtype_of, scalar_names

Values = np.ndarray[Any, Any]

# numpy dtype of unpacked elements -> kind; ml_dtypes types report 'V' as their own kind, so numpy cannot tell.
# int1 and uint1 are held as int8 and uint8, of the same kinds.
_KINDS: dict[np.dtype[Any], str] = {dtype_of(n).as_numpy(): dtype_of(n).kind for n in scalar_names()}


def is_float(values: Values) -> bool:
    """Whether the elements are floating (also the small ml_dtypes types)."""
    return _KINDS[values.dtype] == "float"


@functools.cache
def code_dtype(dtype: DType) -> np.dtype[Any]:
    """The unsigned integer of the width of one stored element (uint8 for packed types)."""
    return np.dtype(f"uint{max(8, dtype.bits)}")


@functools.cache
def all_ones(dtype: DType) -> int:
    """The code of `dtype` whose bits are all set."""
    return int(np.iinfo(code_dtype(dtype)).max)


# -- conversion -----------------------------------------------------------------------------------------------


def convert(values: Values, dtype: DType) -> Values:
    """`values` in the lane type of `dtype`, by the rules of the tile IR.

    Integers wrap. A float becomes an integer by truncation and saturation, NaN becomes 0. A float rounds to
    nearest even once; float8 and float4 saturate to their largest finite value.
    """
    values = np.asarray(values)
    target = dtype.as_numpy()
    if values.dtype == target and dtype.bits >= 8:
        return values
    if dtype.kind == "bool":
        return widen(values) != 0
    if is_float(values):
        return _round_float(values, dtype) if dtype.is_float else _float_to_integer(values, dtype)
    if dtype.is_float:
        return values.astype(target) if dtype.bits >= 32 else _round_float(values.astype(np.float64), dtype)
    return _wrap(values, dtype)


def widen(values: Values) -> Values:
    """`values` in a type that numpy computes in natively, exactly: float32, int64, or their own."""
    if values.dtype.isbuiltin == 1:
        return values.astype(np.float32) if values.dtype == np.float16 else values
    return values.astype(np.float32 if is_float(values) else np.int64)


def _wrap(values: Values, dtype: DType) -> Values:
    target = dtype.as_numpy()
    if dtype.bits >= 8:
        return values.astype(target)
    low = values.astype(np.int64) & ((1 << dtype.bits) - 1)
    if dtype.kind == "int":
        low = low - ((low >> (dtype.bits - 1)) << dtype.bits)
    return low.astype(target)


def _float_to_integer(values: Values, dtype: DType) -> Values:
    signed = dtype.kind == "int"
    bits = dtype.bits - 1 if signed else dtype.bits
    lowest, highest = (-(1 << bits) if signed else 0), (1 << bits) - 1
    exact = np.trunc(values.astype(np.float64))
    # `highest` itself need not be a float64 (2**63 - 1), 2.0**bits always is.
    high, low = exact >= 2.0**bits, exact < lowest
    inside = np.where(high | low | np.isnan(exact), 0, exact).astype(np.int64 if signed else np.uint64)
    inside[high] = highest
    inside[low] = lowest
    return inside.astype(dtype.as_numpy())


def _round_float(values: Values, dtype: DType) -> Values:
    target = dtype.as_numpy()
    if dtype == "float8_e8m0fnu":
        return _to_power_of_two(values).view(target)
    if target.isbuiltin == 1:  # numpy rounds once between its own types
        return widen(values).astype(target)
    # ml_dtypes converts float64 through float32, which would round twice.
    single = _to_float32_odd(values) if values.dtype == np.float64 else values.astype(np.float32)
    if dtype.bits > 8:
        return single.astype(target)
    import ml_dtypes

    largest = float(ml_dtypes.finfo(target).max)
    rounded: Values = np.clip(single, -largest, largest).astype(target)
    if dtype == "float4_e2m1fn":  # has no NaN; the largest value, as the hardware conversions give
        rounded[np.isnan(single)] = largest
    return rounded


def _to_float32_odd(values: Values) -> Values:
    """float64 -> float32 rounded to odd: a later rounding to a narrower type is then as if done directly."""
    nearest = values.astype(np.float32)
    back = nearest.astype(np.float64)
    inexact = (back != values) & ~np.isnan(values)
    too_large = inexact & (np.abs(back) > np.abs(values))
    codes = nearest.view(np.uint32) - too_large.astype(np.uint32)  # one step toward zero
    return (codes | inexact).astype(np.uint32).view(np.float32)


def _to_power_of_two(values: Values) -> Values:
    """Codes of float8_e8m0fnu: the exponent of |x| rounded up, from 2**-127 (also for 0) to 2**127; 255 is NaN."""
    magnitude = np.abs(values.astype(np.float64))
    mantissa, exponent = np.frexp(np.where(np.isfinite(magnitude), magnitude, 1.0))
    rounded = np.where(mantissa == 0.5, exponent - 1, exponent)
    rounded = np.where(magnitude == 0, -127, np.where(np.isinf(magnitude), 127, rounded))
    return np.where(np.isnan(magnitude), 255, np.clip(rounded, -127, 127) + 127).astype(np.uint8)


# -- bit patterns ---------------------------------------------------------------------------------------------


def to_codes(values: Values, dtype: DType) -> Values:
    """The bit pattern of each element as an unsigned integer (of a byte at least)."""
    codes: Values = np.ascontiguousarray(values).view(code_dtype(dtype))
    return codes & np.uint8((1 << dtype.bits) - 1) if dtype.bits < 8 else codes


def from_codes(codes: Values, dtype: DType) -> Values:
    """The elements that have these bit patterns."""
    if dtype.bits < 8 and dtype.is_integer:
        return _wrap(codes, dtype)
    if dtype.kind == "bool":
        return codes != 0
    return np.ascontiguousarray(codes).view(dtype.as_numpy())


def pack(codes: Values, bits: int) -> Values:
    """Codes of `bits` bits to bytes along the last axis, low bits first; the last byte is filled with zeros."""
    per = 8 // bits
    missing = -codes.shape[-1] % per
    if missing:
        codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], missing), np.uint8)], axis=-1)
    grouped = codes.reshape(*codes.shape[:-1], codes.shape[-1] // per, per).astype(np.uint8)
    shifts = np.arange(per, dtype=np.uint8) * np.uint8(bits)
    return np.bitwise_or.reduce(grouped << shifts, axis=-1)


def unpack(stored: Values, bits: int) -> Values:
    """Bytes to codes of `bits` bits along the last axis, low bits first."""
    per = 8 // bits
    shifts = np.arange(per, dtype=np.uint8) * np.uint8(bits)
    codes = (stored[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return codes.reshape(*stored.shape[:-1], stored.shape[-1] * per)


def reinterpret(values: Values, source: DType, target: DType) -> Values:
    """The same bits as another type; vectors have a trailing axis of lanes, and the total width is equal."""
    codes = to_codes(values, source)
    count = codes.shape[0]
    codes = codes.reshape(count, source.lanes)
    stored = pack(codes, source.bits) if source.bits < 8 else codes.view(np.uint8)
    if target.bits < 8:
        wanted = unpack(stored, target.bits)[:, : target.lanes]
    else:
        wanted = np.ascontiguousarray(stored).view(code_dtype(target))
    result = from_codes(wanted, target.scalar)
    return result.reshape(count) if target.lanes == 1 else result


# -- operations -----------------------------------------------------------------------------------------------


def _truncated_quotient(a: Values, b: Values) -> Values:
    if is_float(a):
        return np.asarray(np.true_divide(a, b))
    quotient, remainder = np.floor_divide(a, b), np.remainder(a, b)
    return np.asarray(quotient + ((remainder != 0) & ((a < 0) != (b < 0))).astype(a.dtype))


BINARY: dict[str, Callable[[Values, Values], Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": _truncated_quotient,
    "Mod": np.fmod,
    "FloorDiv": np.floor_divide,
    "FloorMod": np.remainder,
    "Min": np.fmin,  # of a number and NaN: the number, as the hardware instructions give
    "Max": np.fmax,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
    "LShift": np.left_shift,  # by the width or more: 0 (or the sign), as numpy defines it
    "RShift": np.right_shift,
}

COMPARE: dict[str, Callable[[Values, Values], Any]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def binary(name: str, a: Values, b: Values, dtype: DType) -> Values:
    """One operation of BINARY on operands of `dtype`, rounded or wrapped to it."""
    return convert(np.asarray(BINARY[name](widen(a), widen(b))), dtype)


def compare(name: str, a: Values, b: Values) -> Values:
    return np.asarray(COMPARE[name](widen(a), widen(b)))


def _round_exactly(x: Values) -> Values:
    # x + 0.5 itself rounds up for the float64 just below one half.
    whole = np.trunc(x)
    return np.copysign(np.abs(whole) + (np.abs(x - whole) >= 0.5), x)


# Intrinsics on floats: computed in float64, rounded once to the result's type.
FLOAT_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{n: getattr(np, n) for n in "exp exp2 log log2 log10 log1p expm1 sin cos tan sinh cosh tanh".split()},
    **{n: getattr(np, n) for n in "sqrt floor ceil trunc fmod hypot copysign".split()},
    **{f"a{n}": getattr(np, f"arc{n}") for n in "sin cos tan sinh cosh tanh".split()},
    "atan2": np.arctan2,
    "exp10": lambda x: np.power(10.0, x),
    "erf": lambda x: np.asarray(np.frompyfunc(math.erf, 1, 1)(x), dtype=np.float64),
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "pow": np.power,
    "round": _round_exactly,
    "nearbyint": np.rint,
    "rint": np.rint,
    "fabs": np.abs,
    "abs": np.abs,
    "fma": lambda a, b, c: a * b + c,
    "ldexp": lambda x, e: x * np.exp2(e),
}

FLOAT_TESTS: dict[str, Callable[..., Any]] = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}


def float_function(name: str, operands: list[Values], dtype: DType) -> Values:
    """One of FLOAT_FUNCTIONS with a result of `dtype`."""
    return convert(np.asarray(FLOAT_FUNCTIONS[name](*[x.astype(np.float64) for x in operands])), dtype)


def popcount(values: Values, source: DType, dtype: DType) -> Values:
    return convert(np.bitwise_count(to_codes(values, source)), dtype)


def leading_zeros(values: Values, source: DType, dtype: DType) -> Values:
    lengths = np.frompyfunc(int.bit_length, 1, 1)(to_codes(values, source).astype(object))
    return convert(source.bits - np.asarray(lengths, dtype=np.int64), dtype)
