"""Errors of the vector functions, in ulp of float32, against numpy and math in float64."""

from __future__ import annotations

import ctypes
import math
import warnings

import numpy as np
import pytest
from tvm import tirx as tir

from tile_compiler.targets.cpu.features import V3, V4, host_features
from tile_compiler.targets.cpu.library import inline_text

EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45, -1e-45, 1.1e-38, 3.4e38, -3.4e38, 1e-20, 0.5, 2.0, 10.0]


def near(low: float, high: float, count: int = 60000) -> np.ndarray:
    return np.random.default_rng(0).uniform(low, high, count)


def spread(signs: bool = True) -> np.ndarray:
    """Every binade, denormals too."""
    rng = np.random.default_rng(0)
    x = np.exp2(rng.uniform(-149, 128, 60000))
    return x * rng.choice([-1, 1], x.size) if signs else x


def ulp_error(actual: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """|actual - exact| in units of the float32 spacing at `exact`; 0 where both are the same non-finite value."""
    limit = np.float64(np.finfo(np.float32).max)
    rounded = np.where(np.abs(exact) > limit * (1 + 2.0**-25), np.copysign(np.inf, exact), exact)
    both_nan = np.isnan(actual) & np.isnan(exact)
    equal = both_nan | (actual.astype(np.float64) == rounded)
    spacing = np.spacing(np.clip(np.abs(exact), 2.0**-126, limit).astype(np.float32)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(equal, 0, np.abs(actual.astype(np.float64) - exact) / spacing)


def sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def erf(x):
    return np.array([math.erf(v) for v in x])


# function -> (exact, samples, largest allowed error in ulp)
VECTOR = {
    "exp": (np.exp, [near(-105, 90), near(-1, 1), spread()], 1.1),
    "exp2": (np.exp2, [near(-152, 129), near(-1, 1), spread()], 1.0),
    "exp10": (lambda x: np.power(10.0, x), [near(-46, 39), near(-1, 1), spread()], 1.0),
    "log": (np.log, [near(0, 3), spread()], 0.9),
    "log2": (np.log2, [near(0, 3), spread()], 1.0),
    "log10": (np.log10, [near(0, 3), spread()], 1.3),
    "log1p": (np.log1p, [near(-1, 3), spread()], 1.5),
    "tanh": (np.tanh, [near(-10, 10), near(-1, 1), spread()], 1.3),
    "sigmoid": (sigmoid, [near(-105, 105), near(-1, 1), spread()], 2.2),
    "erf": (erf, [near(-5, 5), spread()], 1.1),
    "sqrt": (np.sqrt, [spread()], 0.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), [spread()], 1.5),
    "sin": (np.sin, [near(-10, 10), near(-30000, 30000), spread()], 1.5),
    "cos": (np.cos, [near(-10, 10), near(-30000, 30000), spread()], 1.5),
}
#: Those with a power of 2, which AVX-512 has an instruction for.
POWERS = ("exp", "exp2", "exp10", "tanh", "sigmoid", "erf")
LIBM = "tan sinh cosh asin acos atan asinh acosh atanh".split()
EXACT = {
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "nearbyint": np.rint,
    "round": lambda x: np.copysign(np.floor(np.abs(x.astype(np.float64)) + 0.5), x),
}  # fmt: skip


@pytest.mark.parametrize("name", POWERS)
def test_all_levels_have_the_same_bits(name, elementwise):
    """A power of 2 by an instruction is the one of AVX2: denormal results, overflow, infinities and NaN as well."""
    if host_features().level != "x86-64-v4":
        pytest.skip("this processor has no AVX-512")
    x = np.concatenate([np.array(EDGES), *VECTOR[name][1]]).astype(np.float32)
    of_v3, of_v4 = (elementwise(getattr(tir, name), [x], ["float32"], "float32", level) for level in (V3, V4))
    np.testing.assert_array_equal(of_v3, of_v4)
    assert np.array_equal(np.signbit(of_v3), np.signbit(of_v4))
    texts = [inline_text([f"tl.math.{name}.float32.16"], level) for level in (V3, V4)]
    assert ["scalef" in text for text in texts] == [False, True]


@pytest.mark.parametrize("name", VECTOR)
def test_float32_functions_are_within_their_bound(name, elementwise, features):
    exact, ranges, bound = VECTOR[name]
    x = np.concatenate([np.array(EDGES), *ranges]).astype(np.float32)
    got = elementwise(getattr(tir, name), [x], ["float32"], "float32", features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        error = ulp_error(got, exact(x.astype(np.float64)))
    worst = int(np.nanargmax(np.where(np.isnan(error), np.inf, error)))
    assert error[worst] <= bound, f"{name}({x[worst]!r}) = {got[worst]!r}: {error[worst]:.2f} ulp"


@pytest.mark.parametrize("name", ["exp", "exp2", "exp10"])
def test_a_power_that_vanishes_does_not_underflow_on_the_way(name, elementwise, host):
    x = np.array([-np.inf, -1e30, -160.0, 0.0] * 8, np.float32)
    libm, underflow = ctypes.CDLL(None), 0x10  # FE_UNDERFLOW of x86: it stays set until it is cleared
    libm.feclearexcept(underflow)
    got = elementwise(getattr(tir, name), [x], ["float32"], "float32", host)
    assert not libm.fetestexcept(underflow)
    assert np.array_equal(got, np.tile(np.float32([0, 0, 0, 1]), 8))


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_rounding_functions_are_exact(name, dtype, elementwise, host):
    x = np.concatenate([near(-100, 100, 2000), np.arange(-5, 5, 0.5), [0.49999997, 2049.0, -1e4]]).astype(dtype)
    got = elementwise(getattr(tir, name), [x], [dtype], dtype, host)
    np.testing.assert_array_equal(got, EXACT[name](x).astype(dtype))


@pytest.mark.parametrize("name", LIBM)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_library_functions(name, dtype, elementwise, host):
    low, high = {"acosh": (1, 9), "asin": (-1, 1), "acos": (-1, 1), "atanh": (-0.99, 0.99)}.get(name, (-3, 3))
    x = near(low, high, 500).astype(dtype)
    exact = getattr(np, name.replace("a", "arc", 1) if name[0] == "a" else name)
    got = elementwise(getattr(tir, name), [x], [dtype], dtype, host)
    np.testing.assert_allclose(got, exact(x.astype(np.float64)), rtol=3e-7 if dtype == "float32" else 1e-14)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid", "exp2", "exp10", "sin", "rsqrt", "log1p"])
def test_float64_functions(name, elementwise, host):
    x = near(0.1, 3, 300)
    got = elementwise(getattr(tir, name), [x], ["float64"], "float64", host)
    np.testing.assert_allclose(got, VECTOR[name][0](x), rtol=1e-14)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["exp", "tanh", "sqrt", "sin"])
def test_narrow_floats_are_computed_in_float32_and_rounded_once(name, dtype, elementwise, host):
    from tilelang.ir.dtypes import dtype_of

    target = dtype_of(dtype).as_numpy()
    x = np.abs(near(-8, 8, 2000)).astype(target)
    got = elementwise(getattr(tir, name), [x], [dtype], dtype, host)
    exact = VECTOR[name][0](x.astype(np.float64)).astype(np.float32).astype(target)
    # A float32 error of one ulp may cross a rounding border of the narrow type: rare, and then by one step.
    assert (got == exact).mean() > 0.999


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_functions_of_two_arguments(dtype, elementwise, host):
    x, y = near(0.1, 5, 300).astype(dtype), near(-3, 3, 300).astype(dtype)
    rtol = 3e-7 if dtype == "float32" else 1e-14
    wide = x.astype(np.float64), y.astype(np.float64)
    for function, exact in ((tir.pow, np.power), (tir.atan2, np.arctan2), (tir.fmod, np.fmod)):
        np.testing.assert_allclose(elementwise(function, [x, y], [dtype] * 2, dtype, host), exact(*wide), rtol=rtol)
