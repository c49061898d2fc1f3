"""Element types as C++ writes them: names, widths, and which of C's rules hold for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ElementType:
    """One scalar type of the IR. `kind` is "int", "uint", "float" (C's own), "small float" (the header's) or "bool"."""

    name: str
    text: str
    bits: int
    kind: str

    @property
    def bytes(self) -> int:
        return max(1, self.bits // 8)

    @property
    def per_byte(self) -> int:
        """Elements in one byte of memory: 1 for whole bytes and more."""
        return max(1, 8 // self.bits)

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def bounds(self) -> tuple[int, int] | None:
        """Smallest and largest value of an integer or bool."""
        if self.kind == "bool":
            return 0, 1
        if self.kind == "uint":
            return 0, 2**self.bits - 1
        return (-(2 ** (self.bits - 1)), 2 ** (self.bits - 1) - 1) if self.kind == "int" else None


_ROWS = (
    ("bool", "bool", 8, "bool"),
    ("int8", "int8_t", 8, "int"),
    ("int16", "int16_t", 16, "int"),
    ("int32", "int", 32, "int"),
    ("int64", "int64_t", 64, "int"),
    ("uint8", "uint8_t", 8, "uint"),
    ("uint16", "uint16_t", 16, "uint"),
    ("uint32", "uint32_t", 32, "uint"),
    ("uint64", "uint64_t", 64, "uint"),
    *((f"{u}int{n}", f"tl::{u}int{n}_t", n, f"{u}int") for u in ("", "u") for n in (1, 2, 4)),
    ("float32", "float", 32, "float"),
    ("float64", "double", 64, "float"),
    ("float16", "tl::half_t", 16, "small float"),
    ("bfloat16", "tl::bfloat16_t", 16, "small float"),
    ("float8_e4m3fn", "tl::fp8_e4m3_t", 8, "small float"),
    ("float8_e5m2", "tl::fp8_e5m2_t", 8, "small float"),
    ("float8_e4m3fnuz", "tl::fp8_e4m3fnuz_t", 8, "small float"),
    ("float8_e5m2fnuz", "tl::fp8_e5m2fnuz_t", 8, "small float"),
    ("float8_e8m0fnu", "tl::fp8_e8m0_t", 8, "small float"),
    ("float4_e2m1fn", "tl::fp4_e2m1_t", 4, "small float"),
)
TYPES = {name: ElementType(name, text, bits, kind) for name, text, bits, kind in _ROWS}
INT32, INT64, UINT32, FLOAT32 = (TYPES[name] for name in ("int32", "int64", "uint32", "float32"))


def split(dtype: str) -> tuple[ElementType, int]:
    """(element type, lanes) of a dtype such as `float16x8`. KeyError for a type that C++ here does not have."""
    found = TYPES.get(dtype)
    if found is not None:
        return found, 1
    base, x, lanes = dtype.rpartition("x")
    if not x or not lanes.isdigit():
        raise KeyError(dtype)
    return TYPES[base], int(lanes)
