"""Literals of C++ that have the IR's types already."""

from __future__ import annotations

import math

import numpy as np

from tile_compiler.cfamily.element_types import ElementType

Text = tuple[str, int]
"""An expression and how loosely its outermost operator binds (C++'s table of precedence, 1 = tightest)."""

ATOM, POSTFIX, UNARY, CONDITIONAL = 0, 2, 3, 16


def string_literal(value: str) -> str:
    return f'"{"".join(map(_escaped, value))}"'


def _escaped(character: str) -> str:
    if character in '"\\\n':
        return {'"': '\\"', "\\": "\\\\", "\n": "\\n"}[character]
    if " " <= character <= "~":
        return character
    return "".join(f"\\{byte:03o}" for byte in character.encode())


def int_literal(value: int, element: ElementType) -> Text:
    """A literal that has the type already: 5, 5u, 5LL, 5ULL, (short)5."""
    if element.kind == "bool":
        return ("true" if value else "false"), ATOM
    if element.bits < 32:
        return f"({element.text}){value}", UNARY
    suffix = {("uint", 32): "u", ("int", 64): "LL", ("uint", 64): "ULL"}.get((element.kind, element.bits), "")
    if element.kind == "int" and value == -(2 ** (element.bits - 1)):  # C has no negative literals
        return f"{value + 1}{suffix} - 1", 6
    return f"{value}{suffix}", ATOM if value >= 0 else UNARY


def float_literal(value: float, element: ElementType) -> Text:
    """The shortest literal that gives the value: 0.1f, 1.0, -INFINITY."""
    if not math.isfinite(value):
        text = "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
        text, level = (f"(double){text}", UNARY) if element.bits == 64 else (text, UNARY if value < 0 else ATOM)
    else:
        exact = repr(value) if element.bits == 64 else str(np.float32(value))
        text = exact + ("" if "." in exact or "e" in exact else ".0") + ("" if element.bits == 64 else "f")
        level = UNARY if text.startswith("-") else ATOM
    return (text, level) if element.kind == "float" else (f"{element.text}({text})", POSTFIX)
