"""Tensor maps: what Hopper's tensor memory accelerator must know of a tensor, and the rules that the hardware sets.

A kernel takes a map of 128 bytes as a parameter by value. How it is encoded is a device's own matter; what it says, and
which maps there can be, is the same for all. Source: CUDA driver API, "Tensor Map Object Management",
https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TENSOR__MEMORY.html.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import TensorMapError

if TYPE_CHECKING:
    from .manifest import TensorMapping

BYTES = 128
"""Size of a map."""
ALIGNMENT = 64
"""What its address is a multiple of."""

#: CUtensorMapDataType of each element type. Types of one byte travel as uint8; the copy does not look into elements, only
#: a reduction does.
DATA_TYPES = {
    "uint8": 0, "int8": 0, "bool": 0, "float8_e4m3fn": 0, "float8_e5m2": 0,
    "uint16": 1, "int16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5,
    "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9, "tfloat32": 11,
}  # fmt: skip
ELEMENT_BYTES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 11: 4}
FLOATS = (6, 7, 8, 9, 11)
SWIZZLES = (0, 32, 64, 128)
INTERLEAVES = (0, 16, 32)
L2_PROMOTIONS = (0, 64, 128, 256)
FILLS = ("zero", "nan")


@dataclass(frozen=True)
class TensorMap:
    """One map with all numbers known. Dimensions run from the fastest to the slowest; the fastest is contiguous.

    `shape` counts elements, `strides` bytes from one index to the next in dimensions 1, 2, ...; `box` is what one copy
    moves, of which every `element_strides`-th element. `swizzle` and `interleave` are in bytes, 0 is none; `fill` is what
    elements out of bounds read as.
    """

    address: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    swizzle: int = 0
    interleave: int = 0
    l2_promotion: int = 128
    fill: str = "zero"

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def steps(self) -> tuple[int, ...]:
        """The element strides, 1 where none are given."""
        return self.element_strides or (1,) * self.rank

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy writes to shared memory, out of bounds or not: what its mbarrier counts."""
        total = self.box[0] * ELEMENT_BYTES[DATA_TYPES[self.dtype]]
        for extent, step in zip(self.box[1:], self.steps[1:]):
            total *= -(-extent // step)
        return total

    @staticmethod
    def of(mapping: TensorMapping, address: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> TensorMap:
        """The map that a manifest declares, of one tensor; checked."""
        fixed = (mapping.element_strides, mapping.swizzle, mapping.interleave, mapping.l2_promotion, mapping.fill)
        return TensorMap(address, mapping.dtype, shape, strides, mapping.box, *fixed).check(mapping.param)

    def check(self, name: str) -> TensorMap:
        """Itself; raises TensorMapError for what the hardware cannot do. `name`: of the tensor, for the message."""
        for wrong, found, wanted, repair in self._rules():
            if wrong:
                raise TensorMapError(f"the tensor map of {name}: {found}; expected {wanted}. {repair}")
        return self

    def _rules(self) -> list[tuple[bool, str, str, str]]:
        """(broken, found, expected, repair), in the order in which they make sense."""
        copy_it = "Make the tensor contiguous with padded rows, or copy it without the tensor memory accelerator."
        change_map = "Change the map that the kernel declares."
        ranks = {self.rank, len(self.strides) + 1, len(self.box), len(self.steps)}
        known = self.dtype in DATA_TYPES
        if not known or len(ranks) != 1 or not 1 <= self.rank <= 5:
            return [
                (not known, f"elements of type {self.dtype}", f"one of {', '.join(DATA_TYPES)}", change_map),
                (True, f"extents of ranks {sorted(ranks)}", "one rank of 1 to 5, and a stride less", change_map),
            ]
        kind = DATA_TYPES[self.dtype]
        row = self.box[0] * ELEMENT_BYTES[kind]
        alignment = 32 if self.interleave == 32 else 16
        return [
            (self.interleave not in INTERLEAVES, f"interleave {self.interleave}", "0, 16 or 32 bytes", change_map),
            (self.swizzle not in SWIZZLES, f"swizzle {self.swizzle}", "0, 32, 64 or 128 bytes", change_map),
            (self.l2_promotion not in L2_PROMOTIONS, f"L2 promotion {self.l2_promotion}", "0, 64, 128 or 256", change_map),
            (self.fill not in FILLS, f"fill {self.fill!r}", "'zero' or 'nan'", change_map),
            (self.fill == "nan" and kind not in FLOATS, f"fill 'nan' of {self.dtype}", "a float type", change_map),
            (self.interleave > 0 and self.rank < 3, f"interleave of rank {self.rank}", "rank 3 or more", change_map),
            (self.interleave == 32 and self.swizzle != 32, f"swizzle {self.swizzle}", "32 with interleave 32", change_map),
            (self.address % alignment != 0, f"address {self.address:#x}", f"a multiple of {alignment} bytes", copy_it),
            (not all(0 < n <= 1 << 32 for n in self.shape), f"shape {self.shape}", "extents of 1 to 2^32", copy_it),
            (
                not all(0 <= s < 1 << 40 and s % alignment == 0 for s in self.strides),
                f"strides of {self.strides} bytes",
                f"multiples of {alignment} bytes below 2^40",
                copy_it,
            ),
            (not all(1 <= n <= 256 for n in self.box), f"box {self.box}", "extents of 1 to 256", change_map),
            (not all(1 <= n <= 8 for n in self.steps), f"element strides {self.steps}", "1 to 8", change_map),
            (self.interleave == 0 and row % 16 != 0, f"boxes with rows of {row} bytes", "a multiple of 16", change_map),
            (
                self.swizzle > 0 and self.interleave == 0 and row > self.swizzle,
                f"boxes with rows of {row} bytes",
                f"at most the swizzle of {self.swizzle}",
                change_map,
            ),
        ]  # fmt: skip
