"""Element types a kernel's parameters can have, and the array types that may carry them.

Sub-byte types arrive packed: element i of the last axis sits in byte i // per, low bits first, where per = 8 // bits.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class DType:
    """Facts about one logical dtype. `storage` is the array dtype that carries it, `bits` the width of one element."""

    name: str
    bits: int
    kind: str  # "int", "uint", "float", "bool"
    storage: str

    @property
    def per_byte(self) -> int:
        """How many elements one stored byte holds; 1 for types of a byte or more."""
        return 8 // self.bits if self.bits in (1, 2, 4) else 1

    @property
    def itemsize(self) -> int:
        """Bytes of one stored element."""
        return max(1, self.bits // 8)


def _table() -> dict[str, DType]:
    rows = [DType("bool", 8, "bool", "bool")]
    rows += [
        DType(f"{kind}{bits}", bits, kind, f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)
    ]
    rows += [DType(f"{kind}{bits}", bits, kind, f"{kind}8") for kind in ("int", "uint") for bits in (1, 2, 4)]
    rows += [DType(name, bits, "float", name) for name, bits in [("float16", 16), ("float32", 32), ("float64", 64)]]
    rows += [DType("bfloat16", 16, "float", "bfloat16"), DType("tfloat32", 32, "float", "float32")]
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"):
        rows.append(DType(name, 8, "float", name))
    # One value a byte: no library packs 6-bit floats four to three bytes.
    rows += [DType("float6_e2m3fn", 8, "float", "float6_e2m3fn"), DType("float6_e3m2fn", 8, "float", "float6_e3m2fn")]
    rows.append(DType("float4_e2m1fn", 4, "float", "uint8"))
    return {row.name: row for row in rows}


DTYPES = _table()

#: Packed dtypes of torch: each array element holds per_byte logical elements.
_TORCH_PACKED = {"float4_e2m1fn": ("float4_e2m1fn_x2",)}
_RANGES = {
    d.name: (0, 1)
    if d.kind == "bool"
    else (0, 2**d.bits - 1)
    if d.kind == "uint"
    else (-(2 ** (d.bits - 1)), 2 ** (d.bits - 1) - 1)
    for d in DTYPES.values()
    if d.kind != "float"
}


def integer_range(name: str) -> tuple[int, int]:
    """Smallest and largest value of an integer or bool dtype."""
    return _RANGES[name]


def accepted_names(dtype: str, storage: str) -> frozenset[str]:
    """Names of the array dtypes a tensor parameter takes: one-byte types also come as raw bytes of the same shape."""
    info = DTYPES[dtype]
    names = {storage}
    if info.bits < 8:
        names |= {"uint8", "int8", *_TORCH_PACKED.get(dtype, ())}
    elif info.kind == "bool" or (info.kind == "float" and info.bits == 8):
        names |= {dtype, "uint8", "int8"}
    return frozenset(names)


def numpy_dtype(name: str) -> np.dtype[Any] | None:
    """The numpy dtype of that name, from numpy or ml_dtypes; None if neither has it."""
    try:
        return np.dtype(name)
    except TypeError:
        pass
    try:
        import ml_dtypes  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return None
    scalar = getattr(ml_dtypes, name, None)
    return None if scalar is None else np.dtype(scalar)


def torch_dtype(name: str) -> Any:
    """The torch dtype of that name; None if torch is not loaded or has none. Never imports torch."""
    return getattr(sys.modules.get("torch"), name, None)
