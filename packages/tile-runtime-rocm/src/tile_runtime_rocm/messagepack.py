"""Reads msgpack, the form in which LLVM stores a code object's metadata (https://github.com/msgpack/msgpack, spec.md)."""

from __future__ import annotations

import struct
from typing import Any

_FIXED = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_SIZED = {  # head byte -> (kind, width of its length)
    0xC4: ("bytes", 1), 0xC5: ("bytes", 2), 0xC6: ("bytes", 4), 0xD9: ("text", 1), 0xDA: ("text", 2), 0xDB: ("text", 4),
    0xDC: ("list", 2), 0xDD: ("list", 4), 0xDE: ("map", 2), 0xDF: ("map", 4),
}  # fmt: skip
_CONSTANT = {0xC0: None, 0xC2: False, 0xC3: True}


def unpack(data: bytes) -> Any:
    """The first value in `data`. ValueError for what is cut short or of an extension type."""
    try:
        return _value(data, 0)[0]
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"no msgpack: {error}") from error


def _value(data: bytes, at: int) -> tuple[Any, int]:
    """(the value that begins at `at`, where the next one begins)"""
    head = data[at]
    at += 1
    if head < 0x80 or head >= 0xE0:
        return (head if head < 0x80 else head - 256), at
    if head < 0x90:
        return _content(data, at, "map", head & 15)
    if head < 0xA0:
        return _content(data, at, "list", head & 15)
    if head < 0xC0:
        return _content(data, at, "text", head & 31)
    if head in _CONSTANT:
        return _CONSTANT[head], at
    if head in _FIXED:
        return struct.unpack_from(_FIXED[head], data, at)[0], at + struct.calcsize(_FIXED[head])
    if head in _SIZED:
        kind, width = _SIZED[head]
        return _content(data, at + width, kind, int.from_bytes(data[at : at + width], "big"))
    raise ValueError(f"no msgpack that metadata uses: type byte {head:#x}")


def _content(data: bytes, at: int, kind: str, count: int) -> tuple[Any, int]:
    """`count` bytes of text, or that many entries of a list or map."""
    if kind in ("bytes", "text"):
        part = data[at : at + count]
        if len(part) != count:
            raise ValueError("no msgpack: it ends inside a value")
        return (part if kind == "bytes" else part.decode()), at + count
    values = []
    for _ in range(count * (2 if kind == "map" else 1)):
        value, at = _value(data, at)
        values.append(value)
    return (values if kind == "list" else dict(zip(values[::2], values[1::2]))), at
