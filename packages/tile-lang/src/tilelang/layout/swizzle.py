"""The XOR stage of a layout, and the swizzle modes of the hardware.

A swizzle reorders elements inside aligned blocks of an offset: it XORs `bits` bits that start at bit `base` with
the bits that lie `shift` higher. This is CUTLASS's `Swizzle<B, M, S>` (cute/swizzle.hpp); with offsets in bytes the
hardware modes of TMA and wgmma are `Swizzle(3, 4, 3)`, `Swizzle(2, 4, 3)` and `Swizzle(1, 4, 3)` (PTX ISA,
"Tensor swizzling modes" and "Shared memory matrix layout").
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilelang.layout.expr import Json

# 16 bytes: the widest access of one thread, the unit of ldmatrix, and the piece that a swizzle moves as a whole.
CHUNK_BITS = 128


@dataclass(frozen=True)
class Swizzle:
    """`x ^ ((x >> shift) & mask)` with `mask = (2**bits - 1) << base`, on offsets in elements.

    Elements that share all bits above `base` stay together (2**base of them); every aligned block of
    2**(base + bits) offsets is permuted in itself, so the map is one-to-one and is its own inverse.
    Needs `bits >= 0`, `base >= 0`, `shift >= bits`; ValueError otherwise.
    """

    bits: int
    base: int
    shift: int

    def __post_init__(self) -> None:
        for name in ("bits", "base", "shift"):
            operator.index(getattr(self, name))
        if self.bits < 0 or self.base < 0 or self.shift < self.bits:
            raise ValueError(
                f"Swizzle(bits={self.bits}, base={self.base}, shift={self.shift}) is not one-to-one: bits and base "
                f"must be at least 0 and shift at least bits. Use shift={max(self.bits, 0)} or more."
            )

    def apply(self, offset: Any) -> Any:
        """The swizzled offset; `offset` is an int, an array or an index expression, at least 0."""
        if not self.bits:
            return offset
        return offset ^ ((offset >> self.shift) & (((1 << self.bits) - 1) << self.base))

    def to_json(self) -> Json:
        return [self.bits, self.base, self.shift]


@dataclass(frozen=True)
class SwizzleMode:
    """A shared-memory mode of TMA and wgmma: rows of `chunks` * 16 bytes, in which `bits` bits are XORed."""

    name: str
    chunks: int
    bits: int

    def row_elements(self, element_bits: int) -> int:
        """Elements in one row of the pattern."""
        return self.chunks * CHUNK_BITS // element_bits

    def swizzle(self, element_bits: int) -> Swizzle:
        """The XOR stage, on offsets in elements of that width (a power of two up to 128 bits)."""
        return Swizzle(self.bits, (CHUNK_BITS // element_bits).bit_length() - 1, 3)


# Widest first: the order in which a tile tries them.
SWIZZLE_MODES: Mapping[str, SwizzleMode] = {
    mode.name: mode
    for mode in (
        SwizzleMode("swizzle_128b", 8, 3),
        SwizzleMode("swizzle_64b", 4, 2),
        SwizzleMode("swizzle_32b", 2, 1),
    )
}
