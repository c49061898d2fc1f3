"""Instructions that a user explained in Python (`T.ptx(..., meaning=)`), called by emulated threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tile_runtime.dtypes import numpy_dtype
from tile_runtime.errors import TileRuntimeError

Meanings = Mapping[str, Callable[..., Any]]
_CALLBACK = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64)
)


class NoMeaningError(TileRuntimeError, NotImplementedError):
    """The emulator met an instruction that it does not know, and nobody said in Python what it does."""

    code = "TLR043"


@dataclass(frozen=True)
class Address:
    """Memory at an operand: `load(i, dtype)` and `store(value, i, dtype)` count elements. Nothing is checked."""

    place: int

    def load(self, i: int = 0, dtype: Any = np.int32) -> Any:
        kind = np.dtype(dtype)
        return np.frombuffer(ctypes.string_at(self.place + i * kind.itemsize, kind.itemsize), kind)[0]

    def store(self, value: Any, i: int = 0, dtype: Any = np.int32) -> None:
        data = np.asarray(value, dtype).tobytes()
        ctypes.memmove(self.place + i * len(data), data, len(data))


class Caller:
    """What the runtime calls: `failure` holds what a meaning raised."""

    def __init__(self, meanings: Meanings) -> None:
        self.meanings, self.failure = meanings, list[BaseException]()
        self.callback = _CALLBACK(self._call)

    def _call(self, name: bytes, signature: bytes, operands: Any, result: Any) -> int:
        try:
            kinds, _, returned = signature.decode().partition(":")
            values = [_value(kind, operands[n]) for n, kind in enumerate(kinds.split(",")) if kind]
            value = self._meaning(name.decode())(*values)
            result[0] = _word(returned, value) if returned else 0
        except BaseException as error:  # whatever it is, the launch ends and raises it
            self.failure.append(error)
            return 1
        return 0

    def _meaning(self, name: str) -> Callable[..., Any]:
        found = self.meanings.get(name)
        if found is None:
            raise NoMeaningError(
                f"the emulator does not know the instruction {name.removeprefix('ptx:')}; "
                f"T.ptx(..., meaning=function) says in Python what it does"
            )
        return found


def _numpy(dtype: str) -> np.dtype[Any]:
    found = numpy_dtype(dtype)
    assert found is not None, dtype
    return found


def _value(kind: str, word: int) -> Any:
    """An operand from its 64-bit word."""
    if kind == "*":
        return Address(word)
    dtype = _numpy(kind)
    return np.frombuffer(word.to_bytes(8, "little")[: dtype.itemsize], dtype)[0]


def _word(kind: str, value: Any) -> int:
    dtype = _numpy(kind)
    wide = np.asarray(value)
    if dtype.kind in "iu":  # wraps, as the instruction's register does
        return int(wide) & ((1 << 8 * dtype.itemsize) - 1)
    return int.from_bytes(wide.astype(dtype).tobytes(), "little")
