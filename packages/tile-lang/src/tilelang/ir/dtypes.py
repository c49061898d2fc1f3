"""Element types: names, widths and conversions, without TVM, torch or a compiler.

A `DType` *is* its canonical name (a `str`), so it compares with `"float16"`, formats into messages and
passes wherever a dtype string is expected. It adds facts (`bits`, `lanes`, `kind`) and is callable inside a
kernel: `T.float32(x)` converts `x`.

Storage: a type under one byte is packed along the last dimension, element `i` in byte `i // per`, low bits
first (`docs/internals/tile-ir.md`). `tfloat32` is stored as float32; only tensor instructions round it.
"""

from __future__ import annotations

import contextlib
import functools
import re
from typing import Any

import numpy as np

_KINDS = ("bool", "int", "uint", "float")

# name -> (kind, bits). Names are TVM's and ml_dtypes'.
_SCALARS: dict[str, tuple[str, int]] = {
    "bool": ("bool", 8),
    **{f"int{b}": ("int", b) for b in (1, 2, 4, 8, 16, 32, 64)},
    **{f"uint{b}": ("uint", b) for b in (1, 2, 4, 8, 16, 32, 64)},
    "float16": ("float", 16),
    "bfloat16": ("float", 16),
    "tfloat32": ("float", 32),
    "float32": ("float", 32),
    "float64": ("float", 64),
    "float8_e4m3fn": ("float", 8),
    "float8_e4m3fnuz": ("float", 8),
    "float8_e5m2": ("float", 8),
    "float8_e5m2fnuz": ("float", 8),
    "float8_e8m0fnu": ("float", 8),
    "float4_e2m1fn": ("float", 4),
}

# Spellings of the documents, of torch and of C that mean one of the names above.
_ALIASES = {
    "float": "float32",
    "half": "float16",
    "double": "float64",
    "int": "int32",
    "uint": "uint32",
    "short": "int16",
    "long": "int64",
    "boolean": "bool",
    "tf32": "tfloat32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "float8_e4m3": "float8_e4m3fn",
    "e4m3_float8": "float8_e4m3fn",
    "e5m2_float8": "float8_e5m2",
    "float4_e2m1": "float4_e2m1fn",
    "float4_e2m1fn_x2": "float4_e2m1fn",
}


class DType(str):
    """An element type, for example `DType("float16")` or `DType("float32x4")`.

    Attributes: `kind` is one of bool, int, uint, float; `bits` is the width of one lane; `lanes` is the
    length of a vector type (1 for scalars); `scalar` is the lane's own type.
    """

    __slots__ = ("bits", "kind", "lanes")
    kind: str
    bits: int
    lanes: int

    def __new__(cls, name: str) -> DType:
        return _intern(name)

    @property
    def scalar(self) -> DType:
        """The type of one lane."""
        return self if self.lanes == 1 else _intern(self.rsplit("x", 1)[0])

    @property
    def storage(self) -> DType:
        """The type that memory holds: float32 for tfloat32, the type itself otherwise."""
        return _intern(self.replace("tfloat32", "float32")) if "tfloat32" in self else self

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return self.kind in ("int", "float")

    @property
    def per_byte(self) -> int:
        """Elements in one byte of storage; 1 for types of a byte or more."""
        return max(1, 8 // self.bits)

    @property
    def itemsize(self) -> int:
        """Bytes of one element (of the whole vector for vector types); 1 for packed types."""
        return max(1, self.bits * self.lanes // 8)

    def with_lanes(self, lanes: int) -> DType:
        return _intern(self.scalar if lanes == 1 else f"{self.scalar!s}x{lanes}")

    def as_numpy(self) -> np.dtype[Any]:
        """The numpy dtype that holds one unpacked element (ml_dtypes for the small floats)."""
        return _numpy(self)

    def as_torch(self) -> Any:
        """The torch dtype of that name; imports torch."""
        import torch

        name = str(self.scalar.storage)
        if self.bits < 8:
            return torch.int8 if self.kind == "int" else torch.uint8
        return getattr(torch, name)

    def __call__(self, value: Any) -> Any:
        """`T.float32(x)`: convert a value, inside a kernel or outside."""
        from tilelang.frontend.values import cast

        return cast(value, self)

    def __repr__(self) -> str:
        return f"T.{self!s}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (DType, (str(self),))


@functools.cache
def _numpy(dtype: DType) -> np.dtype[Any]:
    name = str(dtype.scalar.storage)
    if name in ("int1", "uint1"):
        return np.dtype("int8" if name == "int1" else "uint8")
    if dtype.bits >= 8:
        with contextlib.suppress(TypeError):
            return np.dtype(name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


_CACHE: dict[str, DType] = {}
_VECTOR = re.compile(r"^(.*[^0-9x])x(\d+)$|^(.*\d)x(\d+)$")


def _intern(name: str) -> DType:
    name = str(name)
    known = _CACHE.get(name)
    if known is not None:
        return known
    base, lanes = name, 1
    if (match := _VECTOR.match(name)) and name not in _ALIASES:
        base = match[1] or match[3]
        lanes = int(match[2] or match[4])
    base = _ALIASES.get(base, base)
    if base not in _SCALARS:
        raise ValueError(f"unknown dtype {name!r}")
    canonical = base if lanes == 1 else f"{base}x{lanes}"
    value = _CACHE.get(canonical)
    if value is None:
        value = str.__new__(DType, canonical)
        value.kind, value.bits = _SCALARS[base]
        value.lanes = lanes
        _CACHE[canonical] = value
    _CACHE[name] = value
    return value


def dtype_of(spec: Any) -> DType:
    """The `DType` that `spec` names: a string, a DType, a Python type, a numpy or a torch dtype.

    Raises ValueError for anything else.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str):
        return _intern(spec.removeprefix("torch."))
    if spec is float:
        return _intern("float32")
    if spec is int:
        return _intern("int32")
    if spec is bool:
        return _intern("bool")
    text = str(spec)
    if text.startswith("torch."):
        return _intern(text[len("torch.") :])
    name = getattr(spec, "name", None) or getattr(spec, "dtype", None)
    if isinstance(name, str):
        return _intern(name)
    try:
        return _intern(np.dtype(spec).name)
    except TypeError:
        raise ValueError(f"{spec!r} is no dtype: give a name such as 'float16', or a torch or numpy dtype") from None


def scalar_names() -> tuple[str, ...]:
    """Every scalar dtype, in a fixed order."""
    return tuple(_SCALARS)


def aliases() -> dict[str, str]:
    """Accepted spellings -> canonical names."""
    return dict(_ALIASES)


def result_type(a: DType, b: DType) -> DType:
    """The type of `a op b` for two run-time values: the wider one; a float wins over an integer.

    float16 with bfloat16 gives float32; signed with unsigned of one width gives signed, as in TVM.
    """
    a, b = a.scalar.storage, b.scalar.storage
    if a == b:
        return a
    if a.kind == "bool":
        return b
    if b.kind == "bool":
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    if a.is_float:
        return _intern("float32")
    return a if a.kind == "int" else b
