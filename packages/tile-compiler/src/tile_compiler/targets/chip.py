"""What a chip can do at most: the figures of a datasheet, for the bounds in `kernel.report()`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilelang.autotuner.machine import Machine

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
#: Types that it multiplies by several instructions of another.
_BY_SEVERAL = {"tf32x3": ("tf32", 3)}


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
        seconds = 0.0
        for operand, count in work.items():
            unit, times = _BY_SEVERAL.get(operand, (_AS_FAST_AS.get(operand, operand), 1))
            seconds += times * count / self.tensor[unit]
        return seconds


#: Element types as users name them, by the operand type of an instruction.
_USERS_NAMES = {
    "f16": ("float16", "bfloat16"),
    "tf32": ("float32", "tfloat32"),
    "xf32": ("float32", "tfloat32"),
    "s8": ("int8", "uint8"),
    "e4m3": ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"),
    "s4": ("int4", "uint4"),
}


def machine(
    chip: Chip,
    *,
    shared_per_block: int,
    registers_per_thread: int,
    group: int,
    occupancy: Callable[[int, int, int], dict[str, int]],
) -> Machine:
    """What the autotuner's model asks of a target, from its chip and its architecture's limits."""
    from tilelang.autotuner.machine import Machine

    rates = {name: rate for operand, rate in chip.tensor.items() for name in _USERS_NAMES.get(operand, ())}
    return Machine(
        name=chip.name,
        multiprocessors=chip.multiprocessors,
        clock=chip.clock,
        bandwidth=chip.bandwidth,
        tensor=rates,
        shared_per_block=shared_per_block,
        registers_per_thread=registers_per_thread,
        group=group,
        occupancy=occupancy,
    )
