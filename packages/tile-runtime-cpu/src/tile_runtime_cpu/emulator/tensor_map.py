"""Tensor maps for emulated kernels: the 128 bytes hold what the map says, in a form that runtime/tma.cpp reads.

The device's encoding is the driver's secret (cuTensorMapEncodeTiled); a kernel never looks into it.
"""

from __future__ import annotations

import struct

from tile_runtime.errors import TensorMapError
from tile_runtime.tensor_map import BYTES, DATA_TYPES, ELEMENT_BYTES, TensorMap

#: struct TensorMap: magic, type, rank, swizzle, fill with NaN, address, sizes, strides, box, steps, bytes of an element.
_FORMAT = "<I4BQ5Q4Q5H5BB"
_MAGIC = 0x50414D54


def encode(tensor_map: TensorMap, address: int) -> bytes:
    """The map of a tensor that has been moved to `address`."""
    if tensor_map.interleave:
        raise TensorMapError(f"the emulator has no interleaved tensor maps (interleave {tensor_map.interleave})")
    rank, kind = tensor_map.rank, DATA_TYPES[tensor_map.dtype]
    pad = lambda values, count, rest: (*values, *[rest] * (count - len(values)))  # noqa: E731
    packed = struct.pack(
        _FORMAT,
        _MAGIC,
        kind,
        rank,
        tensor_map.swizzle,
        tensor_map.fill == "nan",
        address,
        *pad(tensor_map.shape, 5, 1),
        *pad(tensor_map.strides, 4, 0),
        *pad(tensor_map.box, 5, 1),
        *pad(tensor_map.steps, 5, 1),
        ELEMENT_BYTES[kind],
    )
    return packed.ljust(BYTES, b"\0")
