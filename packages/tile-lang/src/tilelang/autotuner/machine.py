"""What the model knows of a target: limits of a block, and the rates of the best-known chip of that architecture.

The numbers come from the target's compiler (`machine(arch)` of its plugin), which states each fact once, with its source.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tilelang import target as targets
from tilelang.target import Target


@dataclass(frozen=True)
class Machine:
    """Bytes and 32-bit registers that a block and a thread may have; rates in 1/s.

    `tensor`: operations of matrix units. `group`: threads that read the operands of a matrix instruction together.
    `occupancy(threads, registers, shared)` gives the blocks that one multiprocessor holds, by what limits them.
    """

    name: str
    multiprocessors: int
    clock: float
    bandwidth: float  # bytes/s of global memory
    tensor: dict[str, float]  # by element type, as users name it
    shared_per_block: int
    registers_per_thread: int
    group: int
    occupancy: Callable[[int, int, int], dict[str, int]] = field(repr=False, compare=False)


def machine_of(target: Target) -> Machine | None:
    """The machine behind a target; None where its compiler does not describe one (the CPU) or is not installed."""
    entry = targets.compiler_for(target.kind)
    describe = None if entry is None else getattr(entry.load(), "machine", None)
    found: Machine | None = None if describe is None else describe(target.arch)
    return found
