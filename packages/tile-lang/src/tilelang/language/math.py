"""Scalar mathematics of the language: one function per intrinsic, on run-time values and on Python numbers."""

from __future__ import annotations

import builtins
import math as _math
from collections.abc import Callable
from typing import Any

from tilelang.errors import DtypeError, InvalidArgument
from tilelang.frontend.buffers import Buffer, Region
from tilelang.frontend.literals import is_literal, literal_dtype
from tilelang.frontend.values import Value, _lazy, as_value, binary, cast, coerce, convert, select
from tilelang.ir.dtypes import DType, dtype_of

_FLOAT = DType("float32")


def _refuse_tiles(name: str, *args: Any) -> None:
    for x in args:
        if isinstance(x, (Buffer, Region)):
            from tilelang.errors import RuntimeValueNeeded

            raise RuntimeValueNeeded(
                f"T.{name} of a whole tile",
                found=f"{x!r}",
                expected="a scalar",
                repair=f"write the loop: `for i, j in T.Parallel(...): B[i, j] = T.{name}(A[i, j])`",
            )


def _unary(name: str, python: Callable[[float], Any], doc: str, *, integers: bool = False) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        _refuse_tiles(name, x)
        if is_literal(x) and not isinstance(x, Value):
            return python(x)
        value = as_value(x)
        if not value.dtype.is_float:
            if integers:
                return value
            value = convert(value, _FLOAT.with_lanes(value.dtype.lanes))
        dtype = value.dtype

        def make() -> Any:
            from tvm import tirx

            return getattr(tirx, name)(value.node)

        return _lazy(make, dtype, (value,))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


exp = _unary("exp", _math.exp, "e**x.")
exp2 = _unary("exp2", lambda x: 2.0**x, "2**x.")
exp10 = _unary("exp10", lambda x: 10.0**x, "10**x.")
log = _unary("log", _math.log, "Natural logarithm.")
log2 = _unary("log2", _math.log2, "Base-2 logarithm.")
log10 = _unary("log10", _math.log10, "Base-10 logarithm.")
log1p = _unary("log1p", _math.log1p, "log(1 + x).")
sin = _unary("sin", _math.sin, "Sine of radians.")
cos = _unary("cos", _math.cos, "Cosine of radians.")
tan = _unary("tan", _math.tan, "Tangent of radians.")
sinh = _unary("sinh", _math.sinh, "Hyperbolic sine.")
cosh = _unary("cosh", _math.cosh, "Hyperbolic cosine.")
tanh = _unary("tanh", _math.tanh, "Hyperbolic tangent.")
asin = _unary("asin", _math.asin, "Inverse sine, radians.")
acos = _unary("acos", _math.acos, "Inverse cosine, radians.")
atan = _unary("atan", _math.atan, "Inverse tangent, radians.")
asinh = _unary("asinh", _math.asinh, "Inverse hyperbolic sine.")
acosh = _unary("acosh", _math.acosh, "Inverse hyperbolic cosine.")
atanh = _unary("atanh", _math.atanh, "Inverse hyperbolic tangent.")
erf = _unary("erf", _math.erf, "Error function.")
sqrt = _unary("sqrt", _math.sqrt, "Square root.")
rsqrt = _unary("rsqrt", lambda x: 1.0 / _math.sqrt(x), "1 / sqrt(x).")
sigmoid = _unary("sigmoid", lambda x: 1.0 / (1.0 + _math.exp(-x)), "1 / (1 + exp(-x)).")
floor = _unary("floor", _math.floor, "Largest integral value not above x, in x's type.", integers=True)
ceil = _unary("ceil", _math.ceil, "Smallest integral value not below x, in x's type.", integers=True)
trunc = _unary("trunc", _math.trunc, "x rounded toward zero, in x's type.", integers=True)
nearbyint = _unary("nearbyint", builtins.round, "x rounded to the nearest even integral value.", integers=True)
round = _unary("nearbyint", builtins.round, "x rounded to the nearest even integral value.", integers=True)


def abs(x: Any) -> Any:
    """Absolute value; clears the sign of floats (also of NaN and -0)."""
    _refuse_tiles("abs", x)
    if is_literal(x):
        return builtins.abs(x)
    value = as_value(x)
    if value.dtype.kind in ("uint", "bool"):
        return value

    def make() -> Any:
        from tvm import tirx

        node = value.node
        if value.dtype.is_float:
            return tirx.abs(node)
        return tirx.Max(node, tirx.Sub(tirx.const(0, str(node.ty)), node))

    return _lazy(make, value.dtype, (value,))


def _extreme(name: str, python: Callable[..., Any], a: Any, b: Any) -> Any:
    _refuse_tiles(name, a, b)
    if is_literal(a) and is_literal(b):
        return python(a, b)
    x, y, dtype = coerce(a, b)

    def make() -> Any:
        from tvm import tirx

        return (tirx.Max if name == "max" else tirx.Min)(x.node, y.node)

    return _lazy(make, dtype, (x, y))


def max(a: Any, *more: Any) -> Any:
    """The largest argument; of a NaN and a number the number (IEEE maxNum)."""
    for b in more:
        a = _extreme("max", builtins.max, a, b)
    return a


def min(a: Any, *more: Any) -> Any:
    """The smallest argument; of a NaN and a number the number (IEEE minNum)."""
    for b in more:
        a = _extreme("min", builtins.min, a, b)
    return a


def clamp(x: Any, low: Any, high: Any) -> Any:
    """x limited to low..high."""
    return min(max(x, low), high)


def _binary_call(name: str, a: Any, b: Any) -> Any:
    x, y, dtype = coerce(a, b)
    if not dtype.is_float:
        x, y, dtype = convert(x, _FLOAT), convert(y, _FLOAT), _FLOAT

    def make() -> Any:
        from tvm import tirx

        return getattr(tirx, name)(x.node, y.node)

    return _lazy(make, dtype, (x, y))


def pow(a: Any, b: Any) -> Any:
    """a**b."""
    _refuse_tiles("pow", a, b)
    return a**b if is_literal(a) and is_literal(b) else _binary_call("pow", a, b)


def fmod(a: Any, b: Any) -> Any:
    """Remainder of a / b with the sign of a."""
    _refuse_tiles("fmod", a, b)
    return _math.fmod(a, b) if is_literal(a) and is_literal(b) else _binary_call("fmod", a, b)


def atan2(a: Any, b: Any) -> Any:
    """The angle of the point (b, a), radians."""
    return _math.atan2(a, b) if is_literal(a) and is_literal(b) else _binary_call("atan2", a, b)


def _predicate(name: str, python: Callable[[float], bool]) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        if is_literal(x):
            return python(x)
        value = as_value(x)
        if not value.dtype.is_float:
            return name == "isfinite"
        # Written with comparisons, which every target has: NaN is unequal to itself.
        if name == "isnan":
            return binary("ne", value, value)
        magnitude = abs(value)
        infinite = binary("eq", magnitude, float("inf"))
        return infinite if name == "isinf" else binary("lt", magnitude, float("inf"))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Whether x {name[2:]} (bool)."
    return function


isnan = _predicate("isnan", _math.isnan)
isinf = _predicate("isinf", _math.isinf)
isfinite = _predicate("isfinite", _math.isfinite)


def ceildiv(a: Any, b: Any) -> Any:
    """The quotient rounded up, of non-negative integers or integer expressions."""
    if is_literal(b) and b == 0:
        raise InvalidArgument(
            "T.ceildiv by 0",
            found=f"T.ceildiv({a}, 0)",
            expected="a divisor that is not 0",
            repair="mend the block size",
        )
    if is_literal(a) and is_literal(b):
        return -(-int(a) // int(b))
    return (a + (b - 1)) // b


def cdiv(a: Any, b: Any) -> Any:
    """Same as `ceildiv`."""
    return ceildiv(a, b)


def floordiv(a: Any, b: Any) -> Any:
    """The quotient rounded toward minus infinity, `a // b`."""
    return a // b


def floormod(a: Any, b: Any) -> Any:
    """The remainder that goes with `floordiv`, `a % b`."""
    return a % b


def truncdiv(a: Any, b: Any) -> Any:
    """The quotient rounded toward zero, as C divides integers."""
    if is_literal(a) and is_literal(b):
        return int(a / b)
    x, y, dtype = coerce(a, b)

    def make() -> Any:
        from tvm import tirx

        return tirx.truncdiv(x.node, y.node)

    return _lazy(make, dtype, (x, y))


def truncmod(a: Any, b: Any) -> Any:
    """The remainder that goes with `truncdiv`; it has the sign of `a`."""
    return a - truncdiv(a, b) * b


def infinity(dtype: Any = "float32") -> Any:
    """Positive infinity of a floating type."""
    kind = dtype_of(dtype)
    if not kind.is_float or kind in (
        "float8_e4m3fn",
        "float4_e2m1fn",
        "float8_e8m0fnu",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
    ):
        raise DtypeError(
            f"{kind} has no infinity",
            found=f"T.infinity({str(kind)!r})",
            expected="a type that holds infinity",
            repair="use T.max_value(dtype), the largest finite value",
        )
    return as_value(float("inf"), kind)


def max_value(dtype: Any) -> Any:
    """The largest finite value of a type."""
    return _limit(dtype, "max")


def min_value(dtype: Any) -> Any:
    """The smallest finite value of a type."""
    return _limit(dtype, "min")


def _limit(dtype: Any, which: str) -> Any:
    import numpy as np

    kind = dtype_of(dtype)
    if kind.kind == "bool":
        return as_value(which == "max", kind)
    if kind.is_integer:
        bits = kind.bits
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind.kind == "int" else (0, (1 << bits) - 1)
        return as_value(high if which == "max" else low, kind)
    if kind in ("float16", "float32", "float64", "tfloat32"):
        return as_value(float(getattr(np.finfo(kind.as_numpy()), which)), kind)
    import ml_dtypes

    return as_value(float(getattr(ml_dtypes.finfo(kind.as_numpy()), which)), kind)


def reinterpret(x: Any, dtype: Any) -> Any:
    """The same bits as another type of equal width; both orders of arguments are accepted."""
    if isinstance(x, (DType, str)) and not isinstance(dtype, (DType, str)):
        x, dtype = dtype, x
    value, target = as_value(x), dtype_of(dtype)
    if value.dtype.bits * value.dtype.lanes != target.bits * target.lanes:
        raise DtypeError(
            "T.reinterpret between types of different width",
            found=f"{value.dtype} ({value.dtype.bits * value.dtype.lanes} bits) to {target}",
            expected="equal widths",
            repair="T.cast converts the value instead of the bits",
        )

    def make() -> Any:
        from tvm import tirx

        return tirx.reinterpret(str(target.storage), value.node)

    return _lazy(make, target, (value,))


def if_then_else(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` where the condition holds, else `otherwise`; only the taken side is read."""
    return select(condition, then, otherwise)


def Select(condition: Any, then: Any, otherwise: Any) -> Any:
    """As `if_then_else`, but both sides are evaluated."""
    if not isinstance(condition, Value):
        return then if condition else otherwise
    a, b, dtype = coerce(then, otherwise)
    truth = convert(condition, DType("bool"))

    def make() -> Any:
        from tvm import tirx

        return tirx.Select(truth.node, a.node, b.node)

    return _lazy(make, dtype, (truth, a, b))


def shift_left(a: Any, b: Any) -> Any:
    """a << b."""
    return binary("lshift", a, b)


def shift_right(a: Any, b: Any) -> Any:
    """a >> b; arithmetic for signed types."""
    return binary("rshift", a, b)


def bitwise_and(a: Any, b: Any) -> Any:
    """a & b."""
    return binary("and", a, b)


def bitwise_or(a: Any, b: Any) -> Any:
    """a | b."""
    return binary("or", a, b)


def bitwise_xor(a: Any, b: Any) -> Any:
    """a ^ b."""
    return binary("xor", a, b)


def bitwise_not(a: Any) -> Any:
    """All bits inverted."""
    return ~a


def Cast(dtype: Any, x: Any) -> Any:
    """`T.Cast(dtype, x)`: as `T.cast(x, dtype)`, the order of TVM."""
    return cast(x, dtype)


def popcount(x: Any) -> Any:
    """Number of set bits."""
    if is_literal(x):
        return bin(int(x)).count("1")
    value = as_value(x)

    def make() -> Any:
        from tvm import tirx

        return tirx.popcount(value.node)

    return _lazy(make, value.dtype, (value,))


def dot2(a: Any, b: Any, c: Any, dtype: Any = "bfloat16") -> Value:
    """`T.dot2(a, b, c)`: c + a[0] * b[0] + a[1] * b[1], float32, of two pairs of `dtype` (bfloat16 or float16) in words of 32
    bits (uint32), the first number in the low half.

    Products are exact; how the sums are rounded is the target's: an x86 with AVX512_BF16 does it by one instruction, VDPBF16PS
    (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2), which rounds to nearest even and takes denormal
    numbers for 0. Others add the first product, then the second one, in float32.
    """
    from tilelang.ops.dot2 import DTYPES
    from tilelang.ops.dot2 import dot2 as make

    kind = dtype_of(dtype)
    if str(kind) not in DTYPES:
        raise DtypeError(
            "T.dot2 of a type of which no word holds two numbers",
            found=str(kind),
            expected=" or ".join(DTYPES),
            repair='dtype="bfloat16"',
        )
    word = DType("uint32")
    words = [as_value(x, word) for x in (a, b)]
    for x in words:
        if x.dtype != word:
            raise DtypeError(
                "T.dot2 of something that is no word of two numbers",
                found=f"{x.dtype}",
                expected="uint32",
                repair='T.view(buffer, shape, "uint32")',
            )
    total = convert(as_value(c, _FLOAT), _FLOAT)
    return _lazy(lambda: make(words[0].node, words[1].node, total.node, str(kind)), _FLOAT, (*words, total))


def const(x: Any, dtype: Any = None) -> Value:
    """A literal as a run-time value of a given type."""
    return as_value(x, dtype_of(dtype) if dtype is not None else literal_dtype(x))
