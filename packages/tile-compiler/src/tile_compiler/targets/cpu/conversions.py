"""Conversions between element types, as LLVM text for any number of lanes.

Semantics (`/docs/internals/tile-ir.md`, *Expressions*): floats round to nearest even, once; float8 and float4 saturate to their
largest finite value, also from infinity; NaN stays NaN where the type has one, in float4 it becomes the largest value;
float -> integer truncates, saturates, NaN gives 0; float8_e8m0fnu takes the exponent of |x| rounded up.
Formats: OCP 8-bit floating point (e4m3fn, e5m2), ONNX/ml_dtypes fnuz variants, OCP microscaling (e8m0, e2m1).
"""

from __future__ import annotations

from dataclasses import dataclass

from .features import CpuFeatures
from .llvm_text import Function, Value, mangle, split, vector


@dataclass(frozen=True)
class SmallFloat:
    """A float of at most 8 bits: sign, then exponent, then `mantissa` bits.

    `largest` is the code of the largest finite value, `nan` the code written for NaN. `fnuz` types have neither
    infinities nor a negative zero, and NaN in its place.
    """

    mantissa: int
    bias: int
    bits: int
    largest: int
    nan: int
    fnuz: bool = False

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def largest_value(self) -> float:
        exponent, fraction = divmod(self.largest, 1 << self.mantissa)
        return (1 + fraction / (1 << self.mantissa)) * 2.0 ** (exponent - self.bias)


SMALL_FLOATS = {
    "float8_e4m3fn": SmallFloat(3, 7, 8, 0x7E, 0x7F),
    "float8_e4m3fnuz": SmallFloat(3, 8, 8, 0x7F, 0x80, fnuz=True),
    "float8_e5m2": SmallFloat(2, 15, 8, 0x7B, 0x7E),
    "float8_e5m2fnuz": SmallFloat(2, 16, 8, 0x7F, 0x80, fnuz=True),
    "float4_e2m1fn": SmallFloat(1, 1, 4, 0x7, 0x7),
}

_FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e8m0fnu")


#: A class of VFPCLASSPS.
_DENORMAL = 0x20


def _is_integer(dtype: str) -> bool:
    return dtype not in _FLOATS and dtype not in SMALL_FLOATS


# Types that legalised code holds as plain integers.
_CODES = {"bfloat16": "i16", "float8_e8m0fnu": "i8", **dict.fromkeys(SMALL_FLOATS, "i8")}
_NATIVE = {"float16": "half", "float32": "float", "float64": "double"}


def llvm_scalar(dtype: str) -> str:
    """The LLVM type that holds one value of `dtype` in legalised code."""
    if dtype in _CODES:
        return _CODES[dtype]
    if dtype in _NATIVE:
        return _NATIVE[dtype]
    if dtype == "bool":
        return "i1"
    return f"i{max(8, int(dtype.lstrip('uint')))}"


def conversion(name: str, source: str, target: str, lanes: int) -> Function:
    """The function `name`: converts `lanes` values of a float type to any other type.

    Integer sources are widened to float64 by the caller; sub-byte integers are one per byte.
    """
    f = Function(name, vector(llvm_scalar(target), lanes), [("x", vector(llvm_scalar(source), lanes))])
    x = f.args[0]
    if target == source:
        f.ret(x)
    elif target == "float64" or (source == "float64" and _is_integer(target)):
        f.ret(_from_wide(f, to_float(f, x, source), target))
    elif source == "float64" and target == "float32":
        f.ret(x.convert("fptrunc", "float"))
    else:
        single = _to_odd_float32(f, x) if source == "float64" else to_float(f, x, source)
        f.ret(_from_wide(f, single, target))
    return f


def native(name: str, source: str, target: str, lanes: int, features: CpuFeatures) -> Function | None:
    """The same by an instruction for it; None where there is none.

    `vcvtneps2bf16` rounds as `encode_bfloat`, but takes denormals for zeros: a vector that has one goes the long way.
    """
    bits = 32 * lanes
    if (source, target) != ("float32", "bfloat16") or not features.bf16 or bits not in (256, 512):
        return None
    f = Function(name, vector("i16", lanes), [("x", vector("float", lanes))])
    x = f.args[0]
    f.block("entry")
    denormal = f.call(f"llvm.x86.avx512.fpclass.ps.{bits}", vector("i1", lanes), x, f.const("i32", _DENORMAL))
    some = f.emit(f"i{lanes}", f"bitcast {denormal.typed()} to i{lanes}").compare("ne", 0)
    f.line(f"br i1 {some.text}, label %long, label %short")
    f.block("long")
    exact = encode_bfloat(x)
    f.line("br label %done")
    f.block("short")
    rounded = round_by_instruction(f, x)
    f.line("br label %done")
    f.block("done")
    f.ret(f.emit(exact.type, f"phi {exact.type} [ {exact.text}, %long ], [ {rounded.text}, %short ]"))
    return f


def round_by_instruction(f: Function, x: Value) -> Value:
    """A vector of float32 without denormals as bfloat16."""
    lanes = split(x.type)[1]
    halves = f.call(f"llvm.x86.avx512bf16.cvtneps2bf16.{32 * lanes}", vector("bfloat", lanes), x)
    return halves.convert("bitcast", "i16")


def round_two_by_instruction(f: Function, low: Value, high: Value) -> Value:
    """The same of two vectors of 16, as one of 32."""
    halves = f.call("llvm.x86.avx512bf16.cvtne2ps2bf16.512", vector("bfloat", 32), high, low)
    return halves.convert("bitcast", "i16")


def to_float(f: Function, x: Value, source: str) -> Value:
    """`x` exactly as float32 (float64 stays)."""
    if source in ("float32", "float64"):
        return x
    if source == "float16":
        return x.convert("fpext", "float")
    if source == "bfloat16":
        return (x.convert("zext", "i32") << 16).as_float()
    if source == "float8_e8m0fnu":
        return _decode_power(x)
    return _decode_small(f, x, SMALL_FLOATS[source])


def _from_wide(f: Function, x: Value, target: str) -> Value:
    """float32 or float64 -> `target`, one rounding."""
    if target == "float32":
        return x
    if target == "float64":
        return x.convert("fpext", "double")
    if target == "float16":
        return x.convert("fptrunc", "half")
    if target == "bfloat16":
        return encode_bfloat(x)
    if target == "float8_e8m0fnu":
        return _encode_power(f, x)
    if target in SMALL_FLOATS:
        return _encode_small(f, x, SMALL_FLOATS[target])
    return _to_integer(f, x, target)


def _to_odd_float32(f: Function, x: Value) -> Value:
    """float64 -> float32 rounded to odd: rounding that again to a narrower type equals rounding once."""
    nearest = x.convert("fptrunc", "float")
    back = nearest.convert("fpext", "double")
    inexact = back.compare("one", x)
    too_large = f.intrinsic("fabs", back).compare("ogt", f.intrinsic("fabs", x))
    code = nearest.bits() - too_large.convert("zext", "i32")
    return (code | inexact.convert("zext", "i32")).as_float()


def encode_bfloat(x: Value) -> Value:
    bits = x.bits()
    rounded = (bits + ((bits >> 16) & 1) + 0x7FFF) >> 16
    quiet = (bits >> 16) | 0x40
    return x.compare("uno", x).select(quiet, rounded).convert("trunc", "i16")


def _decode_small(f: Function, x: Value, kind: SmallFloat) -> Value:
    """Subnormal codes are count * quantum; the others get their exponent rebased. No float32 denormals occur."""
    wide = x.convert("zext", "i32")
    magnitude = wide & (kind.sign - 1)
    if kind is SMALL_FLOATS["float8_e5m2"]:  # the upper byte of a float16, infinities and NaN included
        return (x.convert("zext", "i16") << 8).as_float().convert("fpext", "float")
    if kind is SMALL_FLOATS["float8_e4m3fn"]:  # a float16 whose exponent is 8 too small
        half = ((magnitude << 7) | ((wide & kind.sign) << 8)).convert("trunc", "i16").as_float()
        value = half.convert("fpext", "float") * 256.0
        return magnitude.compare("eq", kind.nan).select(float("nan"), value)
    normal = ((magnitude << (23 - kind.mantissa)) + ((127 - kind.bias) << 23)).as_float()
    quantum = 2.0 ** (1 - kind.bias - kind.mantissa)
    small = magnitude.convert("sitofp", "float") * quantum
    value = magnitude.compare("ult", 1 << kind.mantissa).select(small, normal)
    signed = (value.bits() | ((wide & kind.sign) << (32 - kind.bits))).as_float()
    if not kind.fnuz:
        return signed
    return wide.compare("eq", kind.nan).select(float("nan"), signed)


def _encode_small(f: Function, x: Value, kind: SmallFloat) -> Value:
    bits = x.bits()
    size = f.intrinsic("fabs", x)
    largest = kind.largest_value
    # minnum gives the number for NaN; NaN is put in at the end.
    clamped = f.intrinsic("minnum", size, size._like(largest))
    code = clamped.bits()
    drop = 23 - kind.mantissa
    normal = ((code + ((code >> drop) & 1) + ((1 << (drop - 1)) - 1)) >> drop) - ((127 - kind.bias) << kind.mantissa)
    # In [2**23 q, 2**24 q) float32 has steps of q, so the addition rounds to a multiple of q (the subnormal step).
    quantum = 2.0 ** (1 - kind.bias - kind.mantissa)
    magic = size._like(quantum * 2.0**23)
    small = (clamped + magic).bits() - magic.bits()
    magnitude = clamped.compare("olt", 2.0 ** (1 - kind.bias)).select(small, normal)
    sign = (bits >> (32 - kind.bits)) & kind.sign
    if kind.fnuz:  # there is no negative zero
        sign = magnitude.compare("eq", 0).select(0, sign)
    result = magnitude | sign
    # float4 has no NaN: the largest value, as the hardware conversions give. float8 keeps the sign of NaN.
    nan = sign._like(kind.nan)
    if kind.bits == 8 and not kind.fnuz:
        nan = nan | sign
    return x.compare("uno", x).select(nan, result).convert("trunc", "i8")


def _decode_power(x: Value) -> Value:
    """Code c is 2**(c - 127); 0 is 2**-127, a float32 denormal; 255 is NaN."""
    wide = x.convert("zext", "i32")
    value = wide.compare("eq", 0).select(0x400000, wide << 23).as_float()
    return wide.compare("eq", 255).select(float("nan"), value)


def _encode_power(f: Function, x: Value) -> Value:
    bits = x.bits() & 0x7FFFFFFF
    # Adding the mantissa's ones carries into the exponent unless the value is a power of two already.
    up = (bits + 0x7FFFFF) >> 23
    # Denormals: up to 2**-127 is code 0, above it code 1 (2**-126).
    denormal = bits.compare("ugt", 0x400000).convert("zext", "i32")
    code = bits.compare("ult", 0x800000).select(denormal, up)
    code = f.intrinsic("umin", code, code._like(254))
    return x.compare("uno", x).select(255, code).convert("trunc", "i8")


def _to_integer(f: Function, x: Value, target: str) -> Value:
    signed, bits = not target.startswith("u"), int(target.lstrip("uint"))
    result = vector(f"i{max(8, bits)}", split(x.type)[1])
    op = "fptosi" if signed else "fptoui"
    if bits >= 8:
        return _saturating(f, x, op, result)
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    wide = _saturating(f, x, op, result)
    prefix = "s" if signed else "u"
    above_low = f.intrinsic(f"{prefix}max", wide, wide._like(low))
    return f.intrinsic(f"{prefix}min", above_low, wide._like(high))


def _saturating(f: Function, x: Value, op: str, result: str) -> Value:
    return f.call(f"llvm.{op}.sat.{mangle(result)}.{mangle(x.type)}", result, x)
