"""What the native launchers (native_source.py), the vendors that add to them, and the one that loads them agree on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import tensor_map
from .dtypes import DTYPES, accepted_names
from .llvm_text import Text
from .manifest import Launch, Param, TensorMapping

LAUNCH, PREPARED = "tl_launch_v2", "tl_prepared_v2"
"""The symbols carry the version of what `self`, the state table and the vendor's part mean: other versions are not run."""


class NotNative(Exception):
    """A kernel whose calls only the Python launcher reads; the text says why."""


class State:
    """Word indices of the state table; after them come `WORDS_OF_LAUNCH` words for each launch.

    `ENCODER` is the vendor's function that makes tensor maps, `MAPS` the memory for them: `MAP_SLOTS` slots of
    `MAP_SLOT_BYTES` bytes, which the vendor divides, for each map of the manifest.
    """

    TENSOR_TYPE, PARAMETER_TYPE, TENSOR_READER, STREAM_READER, DEVICE_TYPE, DEVICE_READER, LAUNCHER = range(7)
    ENCODER, MAPS, LAUNCHES = range(7, 10)
    WORDS_OF_LAUNCH = 3
    KERNEL, READY, ATTRIBUTES = range(3)


MAP_SLOTS, MAP_SLOT_BYTES = 16, 256

HEADER_BYTES = 32
"""From a bytes object to its first byte (CPython, 64 bits); checked before anything native is used."""

# DLDataTypeCode of dlpack.h by the kind of our dtypes; narrow floats have one each.
_KINDS = {"int": 0, "uint": 1, "float": 2, "bool": 6}
_CODES = {
    "bfloat16": 4, "float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}  # fmt: skip
_PLAIN = {"bool", *(f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64))}


@dataclass(frozen=True)
class NativeArgument:
    """One launch argument: an LLVM value of `kind` (`i64` for an address), `size` bytes in the kernel's parameters."""

    kind: str
    text: str
    size: int

    @property
    def alignment(self) -> int:
        return min(self.size, tensor_map.ALIGNMENT)


@dataclass(frozen=True)
class NativeMap:
    """A tensor map as the vendor sees it: LLVM i64 values, `shape` in elements and `strides` in bytes, fastest first."""

    number: int
    mapping: TensorMapping
    address: str
    shape: tuple[str, ...]
    strides: tuple[str, ...]


@dataclass(frozen=True)
class NativeSite:
    """One launch as the vendor sees it; extents are LLVM i64 values, `state` the offset of its words in the table."""

    launch: Launch
    state: int
    arguments: tuple[NativeArgument, ...]
    grid: tuple[str, str, str]
    block: tuple[str, str, str]
    shared: str


Emit = Callable[[Text, NativeSite], None]
"""What a vendor adds: text that launches and leaves for `slow` where that fails. `%table` is the state table, `%stream`
the stream, `%device` (i32) the device, `%memory` room that `native_text` was asked for."""
EncodeMap = Callable[[Text, NativeMap], str]
"""Text that makes a tensor map, or leaves for `slow`; the map's value, of type `MAP_TYPE`. It may use 64 bytes of `%memory`."""
MAP_TYPE = f"[{tensor_map.BYTES // 8} x i64]"


def type_words(param: Param, rank: int) -> set[int]:
    """The third word of a DLTensor for each dtype that the parameter accepts: rank, code, bits, lanes."""
    words = set()
    for name in accepted_names(param.dtype, param.storage):
        info = DTYPES[name]
        code = _KINDS[info.kind] if name in _PLAIN else _CODES.get(name)
        if code is not None:
            words.add(rank | code << 32 | info.bits << 40 | 1 << 48)
    if not words:
        raise NotNative(f"no array library has tensors of {param.dtype}")
    return words
