"""`T.prefetch`: a tile of a tensor that will be read soon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilelang.ops.base import Machine, TileOp, register


@register
@dataclass(frozen=True)
class Prefetch(TileOp):
    """`tl.prefetch(tile)`: fetch a region of a tensor into the caches. It changes no result and reads nothing: the region may
    leave its tensor, and others may write there meanwhile."""

    NAME: ClassVar[str] = "tl.prefetch"
    OPERANDS: ClassVar[tuple[str, ...]] = ("tile",)

    tile: Any

    def meaning(self, machine: Machine) -> None:
        return
