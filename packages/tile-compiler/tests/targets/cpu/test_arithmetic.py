"""Operations on every element type against the definition: rounded to the type each time, wrapped, saturated."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tvm import tirx as tir
from tvm.ir import prim

from tilelang.interpreter import numerics
from tilelang.ir.dtypes import dtype_of

FLOATS = [
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float4_e2m1fn",
]
INTEGERS = ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "int4", "uint4", "int2", "uint2"]


def values(name: str, count: int = 400, seed: int = 0) -> np.ndarray:
    dtype = dtype_of(name)
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        x = rng.standard_normal(count) * 4
        x[:6] = [0, -0.0, 1, -1, 2, 0.5]
        if dtype.bits >= 16:
            x[6:9] = [np.nan, np.inf, -np.inf]
        return numerics.convert(x, dtype)
    return numerics.from_codes(
        rng.integers(0, 2**dtype.bits, count, dtype=np.uint64).astype(numerics.code_dtype(dtype)), dtype
    )


def check(got: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(numerics.widen(got), numerics.widen(expected))


@pytest.mark.parametrize("dtype", FLOATS)
def test_each_operation_rounds_to_the_type(dtype, elementwise, host):
    a, b, kind = values(dtype), values(dtype, seed=1), dtype_of(dtype)
    for name in ("Add", "Sub", "Mul", "Div", "Min", "Max"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = numerics.binary(name, a, b, kind)
        check(elementwise(getattr(prim, name), [a, b], [dtype] * 2, dtype, host), expected)
    if kind.bits < 32:  # a product that is rounded before the sum; float32 may contract
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = numerics.binary("Add", numerics.binary("Mul", a, b, kind), a, kind)
        check(elementwise(lambda x, y: x * y + x, [a, b], [dtype] * 2, dtype, host), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float8_e4m3fn", "int4", "uint8", "int32"])
def test_comparisons_with_nan_and_select(dtype, elementwise, features):
    a, b = values(dtype), values(dtype, seed=1)
    b[::3] = a[::3]
    for name in ("EQ", "NE", "LT", "LE", "GT", "GE"):
        expected = numerics.compare(name, a, b)
        check(elementwise(getattr(prim, name), [a, b], [dtype] * 2, "bool", features), expected)
        chosen = elementwise(
            lambda x, y: tir.Select(getattr(prim, name)(x, y), x, y), [a, b], [dtype] * 2, dtype, features
        )
        check(chosen, np.where(expected, a, b))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap(dtype, elementwise, host):
    a, b, kind = values(dtype), values(dtype, seed=1), dtype_of(dtype)
    for name in ("Add", "Sub", "Mul", "Min", "Max", "BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = numerics.binary(name, a, b, kind)
        for vector in (True, False):
            check(elementwise(getattr(prim, name), [a, b], [dtype] * 2, dtype, host, vector=vector), expected)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "int4"])
def test_division_floors_and_shifts_are_defined_for_every_amount(dtype, elementwise, host):
    a, b, kind = values(dtype), values(dtype, seed=1), dtype_of(dtype)
    nonzero = np.where(b == 0, np.ones_like(b), b)
    if kind.kind == "int":
        nonzero = np.where(nonzero == -1, np.full_like(b, 3), nonzero)
    for name in ("FloorDiv", "FloorMod", "Div", "Mod"):
        expected = numerics.binary(name, a, nonzero, kind)
        check(elementwise(getattr(prim, name), [a, nonzero], [dtype] * 2, dtype, host), expected)
    amount = (np.arange(len(a)) % (kind.bits + (0 if kind.bits < 8 else 3)) % (1 << min(kind.bits - 1, 62))).astype(
        a.dtype
    )
    for name in ("LShift", "RShift"):
        expected = numerics.binary(name, a, amount, kind)
        check(elementwise(getattr(prim, name), [a, amount], [dtype] * 2, dtype, host), expected)


def test_signed_overflow_of_loaded_values_is_not_undefined(elementwise, host):
    """With LLVM's `nsw`, x + 1 > x would fold to true."""
    a = np.array([2**31 - 1, 5], np.int32)
    one = np.array([1, 1], np.int32)
    got = elementwise(lambda x, y: x + y > x, [a, one], ["int32"] * 2, "bool", host)
    np.testing.assert_array_equal(got, [False, True])


@pytest.mark.parametrize("dtype", ["int32", "uint8", "uint64", "int4", "uint2"])
def test_bit_counts(dtype, elementwise, host):
    a, bits = values(dtype), dtype_of(dtype).bits
    codes = a.astype(np.int64).astype(np.uint64) & np.uint64(2**bits - 1)
    ones = np.array([bin(int(c)).count("1") for c in codes])
    lead = np.array([bits - int(c).bit_length() for c in codes])
    count = lambda f: lambda x: prim.Cast("int32", f(x))  # noqa: E731
    np.testing.assert_array_equal(elementwise(count(tir.popcount), [a], [dtype], "int32", host), ones)
    np.testing.assert_array_equal(elementwise(count(tir.clz), [a], [dtype], "int32", host), lead)


def test_reinterpret_keeps_the_bits(elementwise, host):
    x = values("float32")
    for source, target in (("float32", "int32"), ("float32", "uint32")):
        got = elementwise(lambda v: tir.reinterpret(target, v), [x], [source], target, host)
        np.testing.assert_array_equal(got, x.view(target))
    codes = np.arange(400, dtype=np.uint16) * 100
    got = elementwise(lambda v: tir.reinterpret("bfloat16", v), [codes], ["uint16"], "bfloat16", host)
    np.testing.assert_array_equal(got.view(np.uint16), codes)
    small = (np.arange(400) % 256).astype(np.uint8)
    got = elementwise(lambda v: tir.reinterpret("float8_e4m3fn", v), [small], ["uint8"], "float8_e4m3fn", host)
    np.testing.assert_array_equal(got.view(np.uint8), small)


def test_predicates_and_absolute_value(elementwise, host):
    for dtype in ("float32", "float16"):
        x = values(dtype)
        wide = numerics.widen(x)
        for function, exact in ((tir.isnan, np.isnan), (tir.isinf, np.isinf), (tir.isfinite, np.isfinite)):
            np.testing.assert_array_equal(elementwise(function, [x], [dtype], "bool", host), exact(wide))
        check(elementwise(tir.abs, [x], [dtype], dtype, host), np.abs(wide))


def test_a_float_times_zero_is_not_simplified(elementwise, host):
    x = np.array([np.nan, np.inf, 1.0], np.float32)
    got = elementwise(lambda v: prim.Mul(v, tir.const(0.0, "float32")), [x], ["float32"], "float32", host)
    np.testing.assert_array_equal(got, [np.nan, np.nan, 0])
    np.testing.assert_array_equal(
        elementwise(lambda v: prim.Sub(v, v), [x], ["float32"], "float32", host), [np.nan, np.nan, 0]
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "int4", "float16"])
def test_constants_of_every_type(dtype, elementwise, host):
    x = values(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = numerics.binary("Mul", x, numerics.convert(np.full(x.shape, 3.0), dtype_of(dtype)), dtype_of(dtype))
    check(elementwise(lambda v: v * tir.const(3, dtype), [x], [dtype], dtype, host), expected)


def test_if_then_else_reads_only_the_taken_side(elementwise, host):
    x = values("bfloat16", 64)
    taken = elementwise(
        lambda v: tir.if_then_else(v > tir.const(0, "bfloat16"), v, tir.const(0, "bfloat16")),
        [x],
        ["bfloat16"],
        "bfloat16",
        host,
    )
    check(taken, np.where(numerics.widen(x) > 0, numerics.widen(x), 0))
