"""Expressions of a manifest as LLVM text, for the native twin of a launcher (native_source.py)."""

from __future__ import annotations

from collections.abc import Mapping

from .expression import Expression
from .llvm_text import Text
from .native_interface import NotNative

_ARITHMETIC = {
    "+": "add i64 {}, {}",
    "-": "sub i64 {}, {}",
    "*": "mul i64 {}, {}",
    "min": "call i64 @llvm.smin.i64(i64 {}, i64 {})",
    "max": "call i64 @llvm.smax.i64(i64 {}, i64 {})",
}
_COMPARISONS = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}


def native_expression(out: Text, node: Expression, names: Mapping[str, Mapping[str, str]]) -> str:
    """The i64 that a manifest's expression is; `names`: the values of its "dim", "param" and "address" by name.

    The manifest's integers have no bounds; extents of tensors that exist cannot make these overflow. Raises NotNative for a
    division that the text cannot do.
    """
    if isinstance(node, int):
        return str(node)
    operator, *operands = node
    if operator in names:
        return names[operator][operands[0]]
    if operator in ("floordiv", "floormod", "ceildiv"):
        return _division(out, operator, native_expression(out, operands[0], names), operands[1])
    values = [native_expression(out, x, names) for x in operands]
    result = values[0]
    if operator in _ARITHMETIC:
        for value in values[1:]:
            result = out.value(_ARITHMETIC[operator].format(result, value))
        return result
    if operator in _COMPARISONS:
        return out.value(f"zext i1 {out.compare(_COMPARISONS[operator], *values)} to i64")
    bits = [out.compare("ne", value, 0) for value in values]
    if operator == "not":
        return out.value(f"zext i1 {out.value(f'xor i1 {bits[0]}, true')} to i64")
    if operator == "select":
        return out.value(f"select i1 {bits[0]}, i64 {values[1]}, i64 {values[2]}")
    bit = bits[0]
    for other in bits[1:]:
        bit = out.value(f"{operator} i1 {bit}, {other}")  # and, or
    return out.value(f"zext i1 {bit} to i64")


def _division(out: Text, operator: str, value: str, divisor: Expression) -> str:
    """Towards minus infinity (ceildiv: plus), by a positive constant."""
    if not isinstance(divisor, int) or divisor <= 0:
        raise NotNative("it divides by what a call decides")
    if operator == "ceildiv":
        value = out.value(f"add i64 {value}, {divisor - 1}")
    if divisor & (divisor - 1) == 0:
        if operator == "floormod":
            return out.value(f"and i64 {value}, {divisor - 1}")
        return out.value(f"ashr i64 {value}, {divisor.bit_length() - 1}")
    rest = out.value(f"srem i64 {value}, {divisor}")
    below = out.compare("slt", rest, 0)
    if operator == "floormod":
        return out.value(f"select i1 {below}, i64 {out.value(f'add i64 {rest}, {divisor}')}, i64 {rest}")
    quotient = out.value(f"sdiv i64 {value}, {divisor}")
    return out.value(f"sub i64 {quotient}, {out.value(f'zext i1 {below} to i64')}")
