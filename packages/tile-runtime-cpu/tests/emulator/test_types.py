"""Conversions and arithmetic of narrow floats, with both vendors' headers: every code, ties, limits, against ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

SHARED = [
    ("tl::half_t", np.float16, "u2"),
    ("tl::bfloat16_t", ml_dtypes.bfloat16, "u2"),
    ("tl::fp8_e4m3_t", ml_dtypes.float8_e4m3fn, "u1"),
    ("tl::fp8_e5m2_t", ml_dtypes.float8_e5m2, "u1"),
    ("tl::fp8_e8m0_t", ml_dtypes.float8_e8m0fnu, "u1"),
]
FNUZ = [
    ("tl::fp8_e4m3fnuz_t", ml_dtypes.float8_e4m3fnuz, "u1"),
    ("tl::fp8_e5m2fnuz_t", ml_dtypes.float8_e5m2fnuz, "u1"),
]
#: With the vendor whose header has them.
TYPES = [(vendor, *t) for vendor in ("cuda", "hip") for t in SHARED] + [("hip", *t) for t in FNUZ]
FLOATS = [t for t in TYPES if "e8m0" not in t[1]]
LOOP = "for (int i = threadIdx.x; i < n; i += 32) "


def codes(bits):
    return np.arange(1 << 8 * np.dtype(bits).itemsize).astype(bits)


@pytest.mark.parametrize(("vendor", "c_type", "dtype", "bits"), TYPES)
def test_to_float_is_exact(run_body, vendor, c_type, dtype, bits):
    x = codes(bits)
    out = np.zeros(x.size, "f4")
    run_body(f"const {c_type}* X, float* O, int n", f"{LOOP} O[i] = X[i];", [x, out, x.size], vendor=vendor).check()
    np.testing.assert_array_equal(out, x.view(dtype).astype("f4"))


def interesting(dtype):
    """Values of the type, their midpoints and neighbours of those, random bits."""
    values = codes(f"u{np.dtype(dtype).itemsize}").view(dtype).astype("f4")
    values = np.unique(values[np.isfinite(values)])
    middle = (values[1:].astype("f8") + values[:-1]) / 2
    middle = middle.astype("f4")
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 1 << 32, 5000, "u4").view("f4")
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 3e38, 1e-45], "f4")
    with np.errstate(over="ignore"):
        return np.concatenate(
            [values, middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf), noise, special]
        )


@pytest.mark.parametrize(("vendor", "c_type", "dtype", "bits"), FLOATS)
def test_from_float_rounds_to_nearest_even(run_body, vendor, c_type, dtype, bits):
    x = interesting(dtype)
    out = np.zeros(x.size, dtype)
    run_body(
        f"const float* X, {c_type}* O, int n", f"{LOOP} O[i] = {c_type}(X[i]);", [x, out, x.size], vendor=vendor
    ).check()
    bounded = x
    if bits == "u1":  # float8 saturates
        largest = float(ml_dtypes.finfo(dtype).max)
        bounded = np.clip(x, -largest, largest)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = bounded.astype(dtype).astype("f4")
    got = out.astype("f4")
    np.testing.assert_array_equal(got, expected)
    number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(expected[number]))


@pytest.mark.parametrize(("c_type", "dtype", "bits"), SHARED[:2])
def test_from_double_rounds_once(run_on_each, c_type, dtype, bits):
    """A double just above the middle of two values rounds up, although its float is the middle."""
    lower = np.arange(*{"float16": (0x0400, 0x7A00, 7), "bfloat16": (0x3000, 0x4F00, 7)}[np.dtype(dtype).name]).astype(
        bits
    )
    below, up = lower.view(dtype).astype("f8"), (lower + np.array(1, bits)).view(dtype).astype("f8")
    x = (up + below) / 2 * (1 + 2.0**-50)
    out = np.zeros(x.size, bits)
    run_on_each(f"const double* X, {c_type}* O, int n", f"{LOOP} O[i] = {c_type}(X[i]);", [x, out, x.size]).check()
    np.testing.assert_array_equal(out.view(dtype).astype("f8"), up)


def test_e8m0_rounds_the_exponent_up(run_on_each):
    x = np.array([1, 1.0001, 2, 3, 0.5, 0.4, 2.0**-127, 1e-45, 0, 2.0**127, 3e38, np.inf, np.nan, -1], "f4")
    out = np.zeros(x.size, "u1")
    run_on_each(
        "const float* X, tl::fp8_e8m0_t* O, int n", f"{LOOP} O[i] = tl::fp8_e8m0_t(X[i]);", [x, out, x.size]
    ).check()
    assert out.tolist() == [127, 128, 128, 129, 126, 126, 0, 0, 0, 254, 254, 254, 255, 255]


@pytest.mark.parametrize(("vendor", "c_type", "dtype", "bits"), FLOATS)
def test_each_operation_rounds(run_body, vendor, c_type, dtype, bits):
    rng = np.random.default_rng(0)
    a, b, c = ((rng.standard_normal(999) * 3).astype(dtype) for _ in range(3))
    out = np.zeros((5, 999), dtype)
    body = (
        LOOP + "{ O[i] = A[i] * B[i] + C[i]; O[n + i] = A[i] - B[i]; O[2 * n + i] = A[i] / B[i]; O[3 * n + i] = -A[i];"
    )
    body += " T x = A[i]; x += B[i]; x *= C[i]; O[4 * n + i] = A[i] < B[i] ? x : C[i]; }"
    parameters = f"const {c_type}* A, const {c_type}* B, const {c_type}* C, {c_type}* O, int n"
    run_body(parameters, f"typedef {c_type} T; {body}", [a, b, c, out, 999], vendor=vendor).check()

    def rounded(x):
        largest = float(ml_dtypes.finfo(dtype).max)
        return (np.clip(x, -largest, largest) if bits == "u1" else x).astype(dtype).astype("f4")

    a, b, c = (x.astype("f4") for x in (a, b, c))
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = [rounded(rounded(a * b) + c), rounded(a - b), rounded(a / b), -a]
    expected.append(np.where(a < b, rounded(rounded(a + b) * c), c))
    np.testing.assert_array_equal(out.astype("f4"), expected)


INTEGERS = [f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("c_type", INTEGERS)
def test_float_to_integer_truncates_and_saturates(run_on_each, c_type):
    inside = [0, 1.9, -1.9, 127.5, 128, -129, 300, 40000, -40000]
    x = np.array([*inside, 3e9, -3e9, 5e9, 1e19, -1e19, 2e19, np.inf, -np.inf, np.nan], "f4")
    out = np.zeros(x.size, c_type.removesuffix("_t"))
    body = f"{LOOP} O[i] = tl::to_integer<{c_type}>(X[i]);"
    run_on_each(f"const float* X, {c_type}* O, int n", body, [x, out, x.size]).check()
    limits = np.iinfo(out.dtype)
    expected = [0 if np.isnan(v) else int(min(max(v, limits.min), limits.max)) for v in x.tolist()]
    assert out.tolist() == expected


def test_tf32_rounds_ties_away_from_zero(run_on_each):
    x = np.array([1 + 2**-11, 1 + 2**-11 - 2**-20, -1 - 2**-11, 3, np.inf], "f4")
    out = np.zeros_like(x)
    run_on_each("const float* X, float* O, int n", f"{LOOP} O[i] = tl::to_tf32(X[i]);", [x, out, x.size]).check()
    np.testing.assert_array_equal(out, np.array([1 + 2**-10, 1, -1 - 2**-10, 3, np.inf], "f4"))
