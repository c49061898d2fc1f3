"""What a chip can do at most: the figures of a datasheet, for the bounds in `kernel.report()`."""

from __future__ import annotations

from dataclasses import dataclass

#: Types of operands that a matrix unit multiplies as fast as another.
_AS_FAST_AS = {
    "bf16": "f16",
    "u8": "s8",
    "i8": "s8",
    "e5m2": "e4m3",
    "e4m3fnuz": "e4m3",
    "e5m2fnuz": "e4m3",
    "u4": "s4",
}


@dataclass(frozen=True)
class Chip:
    """`multiprocessors` (compute units of AMD), `clock` in Hz, `bandwidth` in bytes/s, `flops` of threads in 1/s.

    `tensor`: dense operations of matrix instructions in 1/s, by the type of the operands as instructions name it.
    """

    name: str
    multiprocessors: int
    clock: float
    bandwidth: float
    flops: float
    tensor: dict[str, float]

    def tensor_seconds(self, work: dict[str, int]) -> float:
        """The least time for so many operations by type of operand. KeyError for a type without a figure."""
        return sum(count / self.tensor[_AS_FAST_AS.get(operand, operand)] for operand, count in work.items())
