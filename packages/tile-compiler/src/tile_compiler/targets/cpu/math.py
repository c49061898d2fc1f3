"""Functions of floats as LLVM text, for any number of lanes.

Float32 versions of the common functions are polynomials of our own, so a vector costs a handful of instructions and no call.
Largest error measured over the ranges of `tests/targets/cpu/test_math.py` (which checks these numbers), in ulp of the result:

| function | ulp | method |
| --- | --- | --- |
| exp, exp2, exp10 | 1.1, 1.0, 1.0 | 2^n * p(r), r = x - n ln 2 in two parts; denormal results and overflow exact |
| log, log2, log10, log1p | 0.9, 1.0, 1.3, 1.5 | x = 2^e m, sqrt(1/2) <= m < sqrt(2); f - f^2/2 + f^3 p(f), f = m - 1 |
| tanh, sigmoid | 1.3, 2.2 | from exp; an odd polynomial for small tanh |
| erf | 1.1 | x + x p(x^2) below 0.93, 1 - exp(q(x)) above |
| sin, cos | 1.5 | reduced by pi/2 in three parts up to 30000, libm above |
| sqrt, rsqrt | 0.5, 1.5 | machine instructions |
| floor, ceil, trunc, nearbyint, round | exact | machine instructions; nearbyint takes halves to even, round away from zero |

With AVX-512 an instruction multiplies by 2^n, to the same bits. The rest, and all of float64 (except what the machine has), calls
libm once per lane, by names of the closed list that the runtime provides. Coefficients are near-minimax fits in float64
(weighted least squares on Chebyshev nodes), rounded to float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from .conversions import llvm_scalar
from .features import CpuFeatures
from .llvm_text import Function, Value, split, vector

_EXP = (0.5, 0.16666512191295624, 0.0416661873459816, 0.008369598537683487, 0.0013951717410236597)
_EXP2 = (
    0.6931471824645996, 0.24022650718688965, 0.0555032454431057, 0.009618000127375126, 0.0013401624746620655,
    0.0001547736901557073,
)  # fmt: skip
_EXP10 = (
    2.3025851249694824, 2.650949239730835, 2.034646987915039, 1.1712394952774048, 0.5421364307403564, 0.20798811316490173
)  # fmt: skip
_LOG = (
    0.3333331048488617, -0.24999986588954926, 0.20002226531505585, -0.16669249534606934, 0.14218653738498688,
    -0.12384367734193802, 0.11873020976781845, -0.1178971379995346, 0.06915157288312912,
)  # fmt: skip
_TANH = (-0.3333328366279602, 0.13331490755081177, -0.05374349653720856, 0.020650578662753105, -0.005717036779969931)
_ERF_SMALL = (
    0.12837915122509003, -0.37612494826316833, 0.11281802505254745, -0.02676556631922722, 0.00499098002910614,
    -0.0005976893589831889,
)  # fmt: skip
_LOG_ERFC = (
    0.0001692051300778985, -1.1294883489608765, -0.6334008574485779, -0.10822038352489471, 0.025080615654587746,
    -0.004156254697591066, 0.0004313935642130673, -2.0828618289669976e-05,
)  # fmt: skip
_SIN = (-0.1666666716337204, 0.008333329111337662, -0.00019839256128761917, 2.7175644845556235e-06)
_COS = (0.04166664555668831, -0.0013887305976822972, 2.4431203200947493e-05)

#: The rounding of an instruction: what the processor is set to.
_AS_SET = 4

_MAGIC = 1.5 * 2.0**23  # adding it rounds to an integer, which is then in the low bits


class Scaling(Function):
    """A function whose processor multiplies a vector by powers of 2: `vscalefps` instead of nine instructions."""

    def scaled(self, p: Value, whole: Value) -> Value:
        lanes = split(p.type)[1]
        every = self.const(f"i{max(8, lanes)}", -1)
        more = [self.const("i32", _AS_SET)] if lanes == 16 else []
        return self.call(f"llvm.x86.avx512.mask.scalef.ps.{32 * lanes}", p.type, p, whole, p, every, *more)


def _parts(value: float, count: int) -> tuple[float, ...]:
    """`value` as a sum of float32 numbers."""
    parts = []
    for _ in range(count):
        parts.append(float(np.float32(value)))
        value -= parts[-1]
    return tuple(parts)


def _polynomial(f: Function, x: Value, coefficients: Sequence[float]) -> Value:
    """Horner's rule, lowest coefficient first in the list."""
    total = x._like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = f.fma(total, x, c)
    return total


def _scale(f: Function, p: Value, whole: Value, n: Value) -> Value:
    """p * 2**n for integers -252 <= n <= 254, `whole` as floats: by an instruction, or in two steps, so that denormal results and
    overflow come out right."""
    if isinstance(f, Scaling):
        return f.scaled(p, whole)
    half = n.ashr(1)
    rest = n - half
    return p * ((half + 127) << 23).as_float() * ((rest + 127) << 23).as_float()


def _nearest(f: Function, x: Value, factor: float) -> tuple[Value, Value]:
    """(nearest integer to x * factor as a float, as an int32)"""
    shifted = f.fma(x, factor, _MAGIC)
    magic = x._like(_MAGIC)
    return shifted - magic, shifted.bits() - magic.bits()


def _or_zero(x: Value, low: float, high: float, power: Callable[[Value], Value]) -> Value:
    """power(x), which is 0 below `low` and does not grow above `high`; NaN stays NaN.

    Lanes below compute with 0: results that underflow take the processor many times as long, and masked scores of -inf
    come by the tile.
    """
    there = x.compare("uge", low)
    return there.select(power(there.select(x.compare("ogt", high).select(high, x), 0.0)), 0.0)


def _exp(f: Function, x: Value) -> Value:
    return _or_zero(x, -104.0, 89.0, lambda x: _exp_within(f, x))


def _exp_within(f: Function, x: Value) -> Value:
    whole, n = _nearest(f, x, 1 / math.log(2))
    high, low = _parts(math.log(2), 2)
    r = f.fma(whole, -low, f.fma(whole, -high, x))
    return _scale(f, f.fma(r * r, _polynomial(f, r, _EXP), r) + 1.0, whole, n)


def _exp2(f: Function, x: Value) -> Value:
    return _or_zero(x, -151.0, 129.0, lambda x: _exp2_within(f, x))


def _exp2_within(f: Function, x: Value) -> Value:
    whole, n = _nearest(f, x, 1.0)
    r = x - whole
    return _scale(f, f.fma(r, _polynomial(f, r, _EXP2), 1.0), whole, n)


def _exp10(f: Function, x: Value) -> Value:
    return _or_zero(x, -46.0, 39.0, lambda x: _exp10_within(f, x))


def _exp10_within(f: Function, x: Value) -> Value:
    whole, n = _nearest(f, x, math.log2(10))
    high, low = _parts(math.log10(2), 2)
    r = f.fma(whole, -low, f.fma(whole, -high, x))
    return _scale(f, f.fma(r, _polynomial(f, r, _EXP10), 1.0), whole, n)


def _split_exponent(x: Value) -> tuple[Value, Value]:
    """(e, f) with x = 2**e * (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), for x > 0 (denormals too)."""
    tiny = x.compare("olt", 2.0**-126)
    scaled = tiny.select(x * 2.0**23, x)
    start = 0x3F3504F3  # sqrt(1/2)
    bits = scaled.bits() - start
    mantissa = ((bits & 0x7FFFFF) + start).as_float()
    exponent = bits.ashr(23) + tiny.select(x.bits()._like(-23), x.bits()._like(0))
    return exponent.convert("sitofp", "float"), mantissa - 1.0


def _log_edges(x: Value, result: Value) -> Value:
    result = x.compare("oeq", math.inf).select(math.inf, result)
    result = x.compare("oeq", 0.0).select(-math.inf, result)
    return x.compare("uge", 0.0).select(x.compare("uno", x).select(x, result), math.nan)


def _log_mantissa(f: Function, m: Value) -> tuple[Value, Value]:
    """log(1 + m) as a sum of m and a smaller part."""
    square = m * m
    return m, f.fma(square * m, _polynomial(f, m, _LOG), square * -0.5)


def _log(f: Function, x: Value) -> Value:
    e, m = _split_exponent(x)
    high, low = _parts(math.log(2), 2)
    first, second = _log_mantissa(f, m)
    total = f.fma(e, high, first + f.fma(e, low, second))
    return _log_edges(x, total)


def _log_scaled(f: Function, x: Value, factor: float, unit: float) -> Value:
    """factor * log(x), where `unit` = factor * log(2)."""
    e, m = _split_exponent(x)
    first, second = _log_mantissa(f, m)
    (high, low), (unit_high, unit_low) = _parts(factor, 2), _parts(unit, 2)
    small = f.fma(second, high, f.fma(first + second, low, e * unit_low))
    # first * high rounds; its error is recovered exactly by the fma.
    product = first * high
    small = small + f.fma(first, high, product * -1.0)
    big = e * unit_high
    total = big + product
    # |big| >= |product| or big is 0: the rounding error of the sum is exact.
    return _log_edges(x, total + ((big - total + product) + small))


def _log2(f: Function, x: Value) -> Value:
    return _log_scaled(f, x, 1 / math.log(2), 1.0)


def _log10(f: Function, x: Value) -> Value:
    return _log_scaled(f, x, 1 / math.log(10), math.log10(2))


def _log1p(f: Function, x: Value) -> Value:
    u = x + 1.0
    lost = (x - (u - 1.0)) / u  # what the rounding of 1 + x dropped
    result = _log(f, u) + lost
    tiny = f.intrinsic("fabs", x).compare("olt", 2.0**-24)
    result = tiny.select(x, result)
    edge = u.compare("oeq", math.inf)
    return x.compare("oeq", -1.0).select(-math.inf, edge.select(math.inf, result))


def _tanh(f: Function, x: Value) -> Value:
    size = f.intrinsic("fabs", x)
    square = x * x
    small = f.fma(square * x, _polynomial(f, square, _TANH), x)
    large = x._like(1.0) - x._like(2.0) / (_exp(f, size * 2.0) + 1.0)
    large = f.intrinsic("copysign", large, x)
    return size.compare("olt", 0.625).select(small, large)


def _sigmoid(f: Function, x: Value) -> Value:
    small = _exp(f, f.intrinsic("fabs", x) * -1.0)
    top = x.compare("olt", 0.0).select(small, x._like(1.0))
    return top / (small + 1.0)


def _erf(f: Function, x: Value) -> Value:
    square = x * x
    small = f.fma(x, _polynomial(f, square, _ERF_SMALL), x)
    size = f.intrinsic("fabs", x)
    within = size.compare("ogt", 4.0).select(4.0, size)  # erfc(4) is 1.5e-8: no power to guard
    large = x._like(1.0) - _exp_within(f, _polynomial(f, within, _LOG_ERFC))
    return size.compare("olt", 0.93).select(small, f.intrinsic("copysign", large, x))


def _rsqrt(f: Function, x: Value) -> Value:
    return x._like(1.0) / f.intrinsic("sqrt", x)


def _sine(cosine: bool) -> Callable[[Function, Value], Value]:
    def write(f: Function, x: Value) -> Value:
        whole, n = _nearest(f, x, 2 / math.pi)
        r = x
        for part in _parts(math.pi / 2, 3):
            r = f.fma(whole, -part, r)
        square = r * r
        sine = f.fma(square * r, _polynomial(f, square, _SIN), r)
        cos = f.fma(square * square, _polynomial(f, square, _COS), f.fma(square, -0.5, 1.0))
        quarter = n + 1 if cosine else n
        value = (quarter & 1).compare("ne", 0).select(cos, sine)
        # An exact zero keeps its sign.
        value = x.compare("oeq", 0.0).select(x._like(1.0) if cosine else x, value)
        sign = ((quarter >> 1) & 1) << 31
        return (value.bits() ^ sign).as_float()

    return write


# Above this |x| the three-part reduction of sin and cos loses digits.
_SINE_LIMIT = 30000.0


def _write_sine(name: str, function: str, lanes: int) -> Function:
    """Polynomials if every lane is small, libm lane by lane otherwise."""
    type_ = vector("float", lanes)
    f = Function(name, type_, [("x", type_)], inline=False)
    (x,) = f.args
    f.block("entry")
    large = f.intrinsic("fabs", x).compare("uge", _SINE_LIMIT)
    if lanes > 1:
        reduced = f"llvm.vector.reduce.or.v{lanes}i1"
        large = f.call(reduced, "i1", large)
    f.line(f"br i1 {large.text}, label %slow, label %fast")
    f.block("fast")
    f.ret(_sine(function == "cos")(f, x))
    f.block("slow")
    f.ret(_per_lane(f, f"{function}f", [x]))
    return f


def _per_lane(f: Function, libm: str, args: Sequence[Value]) -> Value:
    scalar, lanes = split(args[0].type)
    if lanes == 1:
        return f.call(libm, scalar, *args)
    result = f.raw(args[0].type, "poison")
    for i in range(lanes):
        elements = [f.emit(scalar, f"extractelement {a.typed()}, i64 {i}") for a in args]
        one = f.call(libm, scalar, *elements)
        result = f.emit(result.type, f"insertelement {result.typed()}, {one.typed()}, i64 {i}")
    return result


def _floor_mod(f: Function, a: Value, b: Value, libm: str) -> Value:
    """a - floor(a / b) * b with the sign of b, from the exact fmod."""
    r = _per_lane(f, libm, [a, b])
    opposite = (r.compare("olt", 0.0)) ^ (b.compare("olt", 0.0))
    moved = opposite & r.compare("one", 0.0)
    return moved.select(r + b, r)


_VECTOR_F32: dict[str, Callable[[Function, Value], Value]] = {
    "exp": _exp,
    "exp2": _exp2,
    "exp10": _exp10,
    "log": _log,
    "log2": _log2,
    "log10": _log10,
    "log1p": _log1p,
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
}

#: Those that contain a power of 2, and are inlined.
_POWERS = frozenset(["exp", "exp2", "exp10", "tanh", "sigmoid", "erf"])

# Functions that LLVM turns into instructions for both widths.
_MACHINE = {name: name for name in ("fabs", "sqrt", "floor", "ceil", "trunc", "nearbyint", "round", "copysign", "fma")}
_MACHINE["rint"] = "nearbyint"

_LIBM_ONE = (
    "sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh exp exp2 exp10 expm1 log log2 log10 log1p erf".split()
)
_LIBM_TWO = "atan2 pow fmod hypot".split()

#: Names of the tirx intrinsics on floats that this file lowers.
FUNCTIONS = frozenset([*_MACHINE, *_VECTOR_F32, *_LIBM_ONE, *_LIBM_TWO, "sigmoid", "rsqrt", "ldexp"])


def native(name: str, function: str, dtype: str, lanes: int, features: CpuFeatures) -> Function | None:
    """The same as `write`, by an instruction that not all machines have; None where there is none."""
    powers = dtype == "float32" and function in _POWERS and lanes in (4, 8, 16)
    return write(name, function, dtype, lanes, Scaling) if powers and features.scales else None


def write(name: str, function: str, dtype: str, lanes: int, writer: type[Function] = Function) -> Function:
    """The helper `tl.math.<function>.<dtype>.<lanes>`; `dtype` is float32 or float64."""
    single = dtype == "float32"
    type_ = vector(llvm_scalar(dtype), lanes)
    if single and function in ("sin", "cos"):
        return _write_sine(name, function, lanes)
    count = {"fma": 3}.get(function, 2 if function in (*_LIBM_TWO, "copysign", "ldexp", "floormod", "floordiv") else 1)
    machine = function in _MACHINE or function == "rsqrt"
    inline = machine or (single and function in _VECTOR_F32)
    f = writer(name, type_, [(f"x{i}", type_) for i in range(count)], inline=inline)
    f.ret(_body(f, function, single))
    return f


def _body(f: Function, function: str, single: bool) -> Value:
    args = f.args
    suffix = "f" if single else ""
    if function in _MACHINE:
        return f.intrinsic(_MACHINE[function], *args)
    if function == "rsqrt":
        return _rsqrt(f, args[0])
    if single and function in _VECTOR_F32:
        return _VECTOR_F32[function](f, args[0])
    if function == "ldexp":
        return args[0] * (_exp2(f, args[1]) if single else _per_lane(f, "exp2", [args[1]]))
    if function == "sigmoid":
        return args[0]._like(1.0) / (_per_lane(f, "exp", [args[0] * -1.0]) + 1.0)
    if function == "floormod":
        return _floor_mod(f, args[0], args[1], f"fmod{suffix}")
    if function == "floordiv":
        rest = _floor_mod(f, args[0], args[1], f"fmod{suffix}")
        return f.intrinsic("nearbyint", (args[0] - rest) / args[1])
    if function in (*_LIBM_ONE, *_LIBM_TWO):
        return _per_lane(f, function + suffix, args)
    raise ValueError(f"no lowering for the function {function!r}")
