"""`T.fill` and `T.clear`: set every element of a tile to one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilelang.ops.base import Machine, TileOp, register


@register
@dataclass(frozen=True)
class Fill(TileOp):
    """`tl.fill(dst, value)`: dst[...] = cast(value). `value` is a scalar expression of dst's dtype."""

    NAME: ClassVar[str] = "tl.fill"
    OPERANDS: ClassVar[tuple[str, ...]] = ("dst", "value")

    dst: Any
    value: Any

    def writes(self) -> list[Any]:
        return [self.dst]

    def meaning(self, machine: Machine) -> None:
        shape = [int(machine.evaluate(r.extent)) for r in self.dst.region]
        machine.store(self.dst, np.broadcast_to(np.asarray(machine.evaluate(self.value)), shape))
