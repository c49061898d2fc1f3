"""The block of memory that a launch hands to `cuLaunchKernelEx`: configuration, and the kernel's arguments behind it.

    0   CUlaunchConfig          grid, block, shared bytes, stream, attributes                           56 bytes
    56  arguments               each at a multiple of its size (tensor maps: 64)
    ..  params                  the address of each argument, written once

The driver copies each argument to where the kernel has it. To pack them as one buffer would mean to know those places: the
assembler puts a tensor map at a multiple of 64 of constant memory, where parameters begin at 0x210 on sm_90.

Layouts: CUlaunchConfig, CUlaunchAttribute and cuLaunchKernel ("kernelParams") in
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXEC.html and group__CUDA__TYPES.html.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

from tile_runtime.manifest import Launch

CONFIG = "<7I4xQQI4x"
CONFIG_BYTES = struct.calcsize(CONFIG)
_ATTRIBUTE = "<I4x64s"
_COOPERATIVE, _CLUSTER, _SERIALIZATION = 2, 4, 6  # CUlaunchAttributeID


class Slot:
    """Memory for one launch at a time. `pack` fills it from the start; the rest never changes."""

    __slots__ = ("config", "memory", "params")

    def __init__(self, argument_bytes: int, places: Sequence[int]) -> None:
        """`places`: where each argument begins, in bytes from the first."""
        start = params_start(argument_bytes)
        self.memory = ctypes.create_string_buffer(start + 8 * max(1, len(places)))
        self.config = ctypes.addressof(self.memory)
        self.params = self.config + start
        pointers = [self.config + CONFIG_BYTES + place for place in places]
        struct.pack_into(f"<{len(places)}Q", self.memory, start, *pointers)


def params_start(argument_bytes: int) -> int:
    """Where the addresses of the arguments begin."""
    end = CONFIG_BYTES + argument_bytes
    return end + -end % 8


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
