"""`T.cumsum`, `T.cumprod`, `T.cummax`, `T.cummin`: inclusive scans along one dimension."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tilelang.ops.base import Machine, TileOp, register
from tilelang.ops.reduce import numpy_dtype, wide

_UFUNCS = {"sum": np.add, "prod": np.multiply, "max": np.fmax, "min": np.fmin}


@register
@dataclass(frozen=True)
class Scan(TileOp):
    """`tl.scan(src, dst)`: dst[..., i, ...] = combine(src[..., :i+1, ...]) along `dim`, from the end when `reverse`.

    `kind` is sum, prod, max or min. The regions have equal extents and may be the same region. Floating sums
    are formed in float32 at least and rounded once to dst's dtype.
    """

    NAME: ClassVar[str] = "tl.scan"
    OPERANDS: ClassVar[tuple[str, ...]] = ("src", "dst")

    src: Any
    dst: Any
    kind: str = "sum"
    dim: int = 0
    reverse: bool = False

    def reads(self) -> list[Any]:
        return [self.src]

    def writes(self) -> list[Any]:
        return [self.dst]

    def meaning(self, machine: Machine) -> None:
        tile = wide(machine.load(self.src), numpy_dtype(self.dst))
        tile = np.flip(tile, self.dim) if self.reverse else tile
        scanned = _UFUNCS[self.kind].accumulate(tile, axis=self.dim)
        machine.store(self.dst, np.flip(scanned, self.dim) if self.reverse else scanned)
