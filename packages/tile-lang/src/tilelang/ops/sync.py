"""`T.sync_threads`: a barrier of the block, for code that names threads itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.ops.base import Machine, TileOp, register


@register
@dataclass(frozen=True)
class SyncThreads(TileOp):
    """`tl.sync_threads()`: every thread of the block (or `count` threads on barrier `barrier`) arrives and waits.

    Must be reached by all those threads: it is legal only under conditions that are equal for the block.
    """

    NAME: ClassVar[str] = "tl.sync_threads"

    barrier: int = 0
    count: int | None = None

    def meaning(self, machine: Machine) -> None:
        return  # the interpreter runs all threads of a block in lockstep
