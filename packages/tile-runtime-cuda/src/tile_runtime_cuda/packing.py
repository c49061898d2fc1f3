"""The block of memory that a launch hands to `cuLaunchKernelEx`: configuration, and the kernel's arguments behind it.

    0   CUlaunchConfig          grid, block, shared bytes, stream, attributes                           56 bytes
    56  arguments               each at a multiple of its size, as the kernel's parameters lie
    ..  extra                   {1, address of the arguments, 2, address of their size, 0}, written once

Layouts: CUlaunchConfig, CUlaunchAttribute and cuLaunchKernel ("extra") in
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXEC.html and group__CUDA__TYPES.html.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

import numpy as np

from tile_runtime.launch_source import Argument
from tile_runtime.manifest import Launch

CONFIG = "<7I4xQQI4x"
CONFIG_BYTES = struct.calcsize(CONFIG)
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 0
_ATTRIBUTE = "<I4x64s"
_COOPERATIVE, _CLUSTER, _SERIALIZATION = 2, 4, 6  # CUlaunchAttributeID
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
    for argument in arguments:
        code = "Q" if argument.kind == "pointer" else _CODES[argument.dtype]
        width = struct.calcsize(f"<{code}")
        gap = -size % width
        text += f"{gap}x{code}" if gap else code
        size += gap + width
    return text


class Slot:
    """Memory for one launch at a time. `pack` fills it from the start; the rest never changes."""

    __slots__ = ("config", "extra", "memory")

    def __init__(self, argument_bytes: int) -> None:
        end = CONFIG_BYTES + argument_bytes
        extra = end + -end % 8
        self.memory = ctypes.create_string_buffer(extra + 6 * 8)
        self.config = ctypes.addressof(self.memory)
        self.extra = self.config + extra
        size = self.extra + 5 * 8
        pointers = (_BUFFER_POINTER, self.config + CONFIG_BYTES, _BUFFER_SIZE, size, _END, argument_bytes)
        struct.pack_into("<6Q", self.memory, extra, *pointers)


def attributes(launch: Launch, cluster: tuple[int, int, int] | None) -> bytes:
    """The launch's attributes, one CUlaunchAttribute after the other."""
    made = []
    if launch.cooperative:
        made.append((_COOPERATIVE, struct.pack("<i", 1)))
    if cluster is not None:
        made.append((_CLUSTER, struct.pack("<3I", *cluster)))
    if launch.pdl:
        made.append((_SERIALIZATION, struct.pack("<i", 1)))
    return b"".join(struct.pack(_ATTRIBUTE, *item) for item in made)


ATTRIBUTE_BYTES = struct.calcsize(_ATTRIBUTE)
