"""The block of memory that a launch hands to `cuLaunchKernelEx`: configuration, and the kernel's arguments behind it.

    0   CUlaunchConfig          grid, block, shared bytes, stream, attributes                           56 bytes
    56  arguments               each at a multiple of its size (tensor maps: 64), as the kernel's parameters lie
    ..  extra                   {1, address of the arguments, 2, address of their size, 0}, written once

Layouts: CUlaunchConfig, CUlaunchAttribute and cuLaunchKernel ("extra") in
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__EXEC.html and group__CUDA__TYPES.html.
"""

from __future__ import annotations

import ctypes
import struct

from tile_runtime.manifest import Launch

CONFIG = "<7I4xQQI4x"
CONFIG_BYTES = struct.calcsize(CONFIG)
BUFFER_POINTER, BUFFER_SIZE, _END = 1, 2, 0
_ATTRIBUTE = "<I4x64s"
_COOPERATIVE, _CLUSTER, _SERIALIZATION = 2, 4, 6  # CUlaunchAttributeID


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
        pointers = (BUFFER_POINTER, self.config + CONFIG_BYTES, BUFFER_SIZE, size, _END, argument_bytes)
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
