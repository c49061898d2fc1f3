"""The tile registers of AMX by Python, for machines without them: what generated code calls instead of the instructions.

`in_python(text)` puts calls of the functions below in the place of LLVM's intrinsics. They do what the manual says, on this
thread's registers, and write down what the processor would refuse. Source: Intel 64 and IA-32 Architectures Software Developer's
Manual, volume 2 (LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBF16PS, TDPBSSD and relatives).
"""

from __future__ import annotations

import ctypes
import re
import threading
from typing import Any

import ml_dtypes
import numpy as np

_ROWS, _BYTES = 16, 64
_TYPES = {"tdpbf16ps": (ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32)} | {
    f"tdpb{a}{b}d": (*(np.int8 if sign == "s" else np.uint8 for sign in (a, b)), np.int32) for a in "su" for b in "su"
}
#: What the processor would have refused.
refused: list[str] = []


class _Registers(threading.local):
    def __init__(self) -> None:
        self.shapes: list[tuple[int, int]] | None = None  # rows and bytes of each
        self.data = np.zeros((8, _ROWS, _BYTES), np.uint8)

    def shape(self, *tiles: int) -> list[tuple[int, int]]:
        """Shapes of configured tiles, else an entry of `refused`."""
        found = [(0, 0) if self.shapes is None else self.shapes[tile] for tile in tiles]
        if (0, 0) in found:
            refused.append(f"tiles {tiles} have the shapes {found}")
        return found


_registers = _Registers()


def _memory(address: int, size: int) -> np.ndarray[Any, Any]:
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)


def _ldtilecfg(address: int) -> None:
    config = bytes(_memory(address, 64))
    rows, sizes = config[48:56], np.frombuffer(config[16:32], np.uint16)
    wrong = any(r > _ROWS or b > _BYTES or (r == 0) != (b == 0) for r, b in zip(rows, sizes))
    if wrong or config[0] != 1 or any(config[1:16]) or any(config[32:48]) or any(config[56:]):
        refused.append(f"the configuration {config.hex()}")
    _registers.shapes = [(int(r), int(b)) for r, b in zip(rows, sizes)]
    _registers.data[:] = 0


def _tilerelease() -> None:
    _registers.shapes = None


def _tilezero(tile: int) -> None:
    _registers.shape(tile)
    _registers.data[tile] = 0


def _tileloadd64(tile: int, address: int, stride: int) -> None:
    (rows, size) = _registers.shape(tile)[0]
    _registers.data[tile] = 0
    for row in range(rows):
        _registers.data[tile, row, :size] = _memory(address + row * stride, size)


def _tilestored64(tile: int, address: int, stride: int) -> None:
    (rows, size) = _registers.shape(tile)[0]
    for row in range(rows):
        _memory(address + row * stride, size)[:] = _registers.data[tile, row, :size]


def _multiply(name: str, acc: int, a: int, b: int) -> None:
    of_a, of_b, of_acc = _TYPES[name]
    (rows, size), (high, deep), (groups, wide) = _registers.shape(acc, a, b)
    if (rows, size, deep) != (high, wide, 4 * groups):
        refused.append(f"{name} of {(rows, size)}, {(high, deep)}, {(groups, wide)}")
    wider = np.float64 if of_acc is np.float32 else np.int64
    count = 4 // np.dtype(of_a).itemsize
    left = _registers.data[a].view(of_a)[:rows, : groups * count].astype(wider)
    right = _registers.data[b].view(of_b).astype(wider).reshape(_ROWS, -1, count)[:groups, : size // 4]
    right = right.swapaxes(1, 2).reshape(groups * count, -1)
    sums = _registers.data[acc].view(of_acc)
    with np.errstate(
        invalid="ignore", over="ignore"
    ):  # infinities, and what is none in float32, are numbers to a processor
        sums[:rows, : size // 4] = (sums[:rows, : size // 4] + left @ right).astype(of_acc)


def _function(types: list[Any], call: Any) -> Any:
    def checked(*arguments: int) -> None:
        try:
            call(*arguments)
        except Exception as error:  # ctypes would print it and go on
            refused.append(repr(error))

    return ctypes.CFUNCTYPE(None, *types)(checked)


_TILE, _POINTER, _STRIDE = ctypes.c_uint8, ctypes.c_size_t, ctypes.c_int64
_FUNCTIONS = {
    "ldtilecfg": _function([_POINTER], _ldtilecfg),
    "tilerelease": _function([], _tilerelease),
    "tilezero": _function([_TILE], _tilezero),
    "tileloadd64": _function([_TILE, _POINTER, _STRIDE], _tileloadd64),
    "tilestored64": _function([_TILE, _POINTER, _STRIDE], _tilestored64),
} | {name: _function([_TILE] * 3, lambda acc, a, b, name=name: _multiply(name, acc, a, b)) for name in _TYPES}


def in_python(text: str) -> str:
    """LLVM text with calls of these functions, at their addresses."""
    kept = (line for line in text.splitlines() if not re.match(r"declare void @llvm\.x86\.(\w+)\(", line))

    def address(found: re.Match[str]) -> str:
        at = ctypes.cast(_FUNCTIONS[found[1]], ctypes.c_void_p).value
        return f"call void inttoptr (i64 {at} to ptr)("

    return re.sub(r"call void @llvm\.x86\.(\w+)\(", address, "\n".join(kept))
