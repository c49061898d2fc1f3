"""Element types: conversion of every code of every small type, rounding once, wrapping, bit patterns."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilelang.interpreter.numerics import binary, convert, from_codes, pack, reinterpret, to_codes, unpack
from tilelang.ir.dtypes import dtype_of, scalar_names

SMALL_FLOATS = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn"]
BYTE_FLOATS = [*SMALL_FLOATS[:4], "float8_e8m0fnu"]


def all_values(name):
    dtype = dtype_of(name)
    return from_codes(np.arange(1 << dtype.bits, dtype=np.uint8), dtype)


@pytest.mark.parametrize("name", [*SMALL_FLOATS, "float8_e8m0fnu"])
@pytest.mark.parametrize("through", ["float16", "bfloat16", "float32", "float64"])
def test_every_code_survives_a_wider_type(name, through):
    if name == "float8_e8m0fnu" and through == "float16":
        pytest.skip("float16 has not its range")
    values = all_values(name)
    back = convert(convert(values, dtype_of(through)), dtype_of(name))
    numbers, again = values.astype(np.float32), back.astype(np.float32)
    finite = np.isfinite(numbers)
    assert (to_codes(back, dtype_of(name))[finite] == to_codes(values, dtype_of(name))[finite]).all()
    assert np.isnan(again[np.isnan(numbers)]).all()
    assert (np.abs(again[np.isinf(numbers)]) == np.abs(numbers[finite]).max()).all()


def nearest_even(x, name):
    """The code that float -> `name` must give, by search over all finite values."""
    table = all_values(name).astype(np.float64)
    codes = np.flatnonzero(np.isfinite(table))
    distance = np.abs(table[codes] - x)
    best = codes[distance == distance.min()]
    signed_zero = np.signbit(table[codes[table[codes] == 0]]).any()
    best = [c for c in best if not signed_zero or np.signbit(table[c]) == np.signbit(x)]
    return table[next((c for c in best if c % 2 == 0), best[0])]


@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_floats_round_to_nearest_even_and_saturate(name):
    finite = np.unique(all_values(name).astype(np.float64))
    finite = finite[np.isfinite(finite)]
    middles = (finite[1:] + finite[:-1]) / 2
    samples = np.concatenate([middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf), finite])
    got = convert(samples, dtype_of(name)).astype(np.float64)
    np.testing.assert_array_equal(got, [nearest_even(x, name) for x in samples])
    largest = finite[-1]
    wild = np.asarray([largest * 1.01, largest * 100, np.inf, -largest * 3, -np.inf])
    expected = [largest] * 3 + [-largest] * 2
    for wide in (np.float32, np.float64):
        np.testing.assert_array_equal(convert(wild.astype(wide), dtype_of(name)).astype(np.float64), expected)


@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_nan_stays_nan_where_the_type_has_one(name):
    got = convert(np.asarray([np.nan], np.float32), dtype_of(name)).astype(np.float32)[0]
    assert got == 6.0 if name == "float4_e2m1fn" else np.isnan(got)


def test_powers_of_two_round_away_from_zero():
    given_values = np.asarray([1.0, 1.0001, 3.0, 4.0, 0.0, 1e-45, 3e38, np.inf, -5.0, np.nan])
    got = convert(given_values, dtype_of("float8_e8m0fnu")).astype(np.float64)
    np.testing.assert_array_equal(got, [1, 2, 4, 4, 2.0**-127, 2.0**-127, 2.0**127, 2.0**127, 8, np.nan])


@pytest.mark.parametrize("name", ["float16", "bfloat16", *SMALL_FLOATS])
@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-3e4, 3e4), min_size=1, max_size=8))
def test_float64_rounds_once(name, numbers):
    # Through float32 the value just above a midpoint would land on it and round to even.
    got = convert(np.asarray(numbers), dtype_of(name)).astype(np.float64)
    for x, y in zip(numbers, got):
        around = np.asarray([y]).astype(dtype_of(name).as_numpy())
        codes = to_codes(around, dtype_of(name)).astype(np.int64)[0]
        for step in (-1, 1):
            code = codes + step
            if 0 <= code < 1 << dtype_of(name).bits:
                code_type = np.uint16 if dtype_of(name).bits == 16 else np.uint8
                other = float(from_codes(np.asarray([code], code_type), dtype_of(name)).astype(np.float64)[0])
                if np.isfinite(other):
                    assert abs(x - y) <= abs(x - other)


def test_float_to_integer_truncates_and_saturates():
    floats = np.asarray([1.9, -1.9, 300, -300, np.nan, np.inf, -np.inf, 1e30])
    for name in ("float32", "bfloat16", "float64"):
        source = convert(floats, dtype_of(name))
        np.testing.assert_array_equal(convert(source, dtype_of("int8")), [1, -1, 127, -128, 0, 127, -128, 127])
        np.testing.assert_array_equal(convert(source, dtype_of("uint8")), [1, 0, 255, 0, 0, 255, 0, 255])
    top = np.iinfo(np.int64)
    np.testing.assert_array_equal(convert(np.asarray([1e30, -1e30]), dtype_of("int64")), [top.max, top.min])
    np.testing.assert_array_equal(convert(np.asarray([1e30, -1.0]), dtype_of("uint64")), [2**64 - 1, 0])
    np.testing.assert_array_equal(convert(np.asarray([9.7, -99.0, 7.2]), dtype_of("int4")).astype(int), [7, -8, 7])
    np.testing.assert_array_equal(convert(np.asarray([0.0, -0.0, 0.5, np.nan]), dtype_of("bool")), [0, 0, 1, 1])


@pytest.mark.parametrize("name", [n for n in scalar_names() if dtype_of(n).is_integer])
def test_integers_wrap(name):
    dtype = dtype_of(name)
    numbers = np.asarray([-300, -9, -1, 0, 1, 7, 8, 15, 16, 255, 70000, -(2**40)])
    low = [n % (1 << dtype.bits) for n in numbers.tolist()]
    expected = [n - (1 << dtype.bits) if dtype.kind == "int" and n >> (dtype.bits - 1) else n for n in low]
    assert [int(x) for x in convert(numbers, dtype)] == expected


def test_narrow_arithmetic_rounds_each_step():
    half = dtype_of("float16")
    a, b = np.asarray([2048.0], np.float16), np.asarray([1.0], np.float16)
    assert binary("Add", binary("Add", a, b, half), b, half)[0] == 2048
    brain = dtype_of("bfloat16")
    third = convert(np.asarray([1 / 3]), brain)
    assert binary("Mul", third, third, brain)[0] == (third.astype(np.float32) ** 2).astype(ml_dtypes.bfloat16)[0]
    e4m3 = dtype_of("float8_e4m3fn")
    top = convert(np.asarray([448.0]), e4m3)
    assert binary("Add", top, top, e4m3).astype(float)[0] == 448
    four = dtype_of("int4")
    seven = convert(np.asarray([7]), four)
    assert int(binary("Add", seven, seven, four)[0]) == -2


def test_division_and_remainder():
    i32 = dtype_of("int32")
    a, b = np.asarray([7, -7, 7, -7], np.int32), np.asarray([2, 2, -2, -2], np.int32)
    np.testing.assert_array_equal(binary("FloorDiv", a, b, i32), [3, -4, -4, 3])
    np.testing.assert_array_equal(binary("FloorMod", a, b, i32), [1, 1, -1, -1])
    np.testing.assert_array_equal(binary("Div", a, b, i32), [3, -3, -3, 3])
    np.testing.assert_array_equal(binary("Mod", a, b, i32), [1, -1, 1, -1])


@pytest.mark.parametrize("name", ["int4", "uint4", "float4_e2m1fn", "int2", "uint2", "int1", "uint1"])
def test_packing_puts_the_first_element_low(name):
    dtype = dtype_of(name)
    values = from_codes(np.arange(16, dtype=np.uint8) % (1 << dtype.bits), dtype)
    stored = pack(to_codes(values, dtype), dtype.bits)
    assert stored.shape == (16 * dtype.bits // 8,)
    expected = sum((i % (1 << dtype.bits)) << (i * dtype.bits) for i in range(dtype.per_byte))
    assert stored[0] == expected
    again = from_codes(unpack(stored, dtype.bits), dtype)
    np.testing.assert_array_equal(again.astype(np.float32), values.astype(np.float32))


def test_reinterpret_keeps_bits():
    ones = np.asarray([1.0, -2.0], np.float32)
    assert reinterpret(ones, dtype_of("float32"), dtype_of("int32")).tolist() == [0x3F800000, -0x40000000]
    codes = np.asarray([[1, 2, 3, 4]], np.uint8)
    assert reinterpret(codes, dtype_of("uint8x4"), dtype_of("uint32")).tolist() == [0x04030201]
    assert reinterpret(np.asarray([0x21], np.uint8), dtype_of("uint8"), dtype_of("uint4x2")).astype(int).tolist() == [
        [1, 2]
    ]
