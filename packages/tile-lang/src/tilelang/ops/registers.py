"""How many registers a warpgroup's threads may use (PTX ISA, "setmaxnreg")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.ops.base import Machine, ThreadOp, register


@register
@dataclass(frozen=True)
class SetMaxNreg(ThreadOp):
    """`tl.set_max_nreg()`: from here on the threads of the warpgroup have `count` registers each.

    `increase`: they wait until so many are free; otherwise they give some back. All threads of a warpgroup do it.
    """

    NAME: ClassVar[str] = "tl.set_max_nreg"

    count: int
    increase: bool = False

    def meaning(self, machine: Machine) -> None:
        return
