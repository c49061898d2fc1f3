"""A kernel's arguments as one block of bytes, each at a multiple of its size, as C lays out its parameters.

CUDA's and HIP's launches take such a block. Addresses are 8 bytes; f16 and bf16 scalars go as their bits; tensor maps
are 128 bytes at a multiple of 64.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from . import tensor_map
from .launch_source import Argument

_CODES = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
    "uint64": "Q", "float32": "f", "tfloat32": "f", "float64": "d", "float16": "H", "bfloat16": "H",
}  # fmt: skip
CONVERTED = ("float16", "bfloat16")
"""Scalars that are packed as bits, by `narrow_bits`."""


def narrow_bits(dtype: str, value: float) -> int:
    """A number as the bits of a float16 or bfloat16, rounded to nearest even."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return int(np.float16(value).view(np.uint16))
    with np.errstate(over="ignore"):
        bits = int(np.float32(value).view(np.uint32))
    if bits & 0x7FFFFFFF > 0x7F800000:
        return 0x7FFF
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def argument_format(arguments: Sequence[Argument]) -> str:
    """The struct format of the arguments. KeyError for a type that no kernel takes by value."""
    text, size = "", 0
    for argument, place in zip(arguments, argument_places(arguments), strict=True):
        gap, code = place - size, _code(argument)
        text += f"{gap}x{code}" if gap else code
        size = place + struct.calcsize(f"<{code}")
    return text


def argument_places(arguments: Sequence[Argument]) -> list[int]:
    """Where each argument begins in `argument_format`."""
    places, size = [], 0
    for argument in arguments:
        width = struct.calcsize(f"<{_code(argument)}")
        size += -size % (tensor_map.ALIGNMENT if argument.kind == "tensormap" else width)
        places.append(size)
        size += width
    return places


def _code(argument: Argument) -> str:
    if argument.kind == "tensormap":
        return f"{tensor_map.BYTES}s"
    return "Q" if argument.kind == "pointer" else _CODES[argument.dtype]


def argument_text(argument: Argument) -> str:
    """Python text of what `struct.pack` takes for an argument; it may call `narrow_bits`."""
    if argument.kind == "value" and argument.dtype in CONVERTED:
        return f"narrow_bits({argument.dtype!r}, {argument.text})"
    return argument.text
