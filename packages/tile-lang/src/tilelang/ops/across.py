"""Barriers between blocks: of a cluster (PTX ISA, "barrier.cluster"), and of the whole grid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilelang.ops.base import Machine, TileOp, register


@dataclass(frozen=True)
class AcrossBlocks(TileOp):
    """What all threads of several blocks do together: the blocks must run at the same time."""


@register
@dataclass(frozen=True)
class ClusterSync(AcrossBlocks):
    """`tl.cluster_sync()`: all threads of the cluster's blocks meet; what each wrote before is seen by all afterwards.

    `half`: "arrive" says that a block has come, "arrive_relaxed" too but not that its writes are seen, "wait" waits for
    the others. Each block does both halves in turn.
    """

    NAME: ClassVar[str] = "tl.cluster_sync"

    half: str = ""

    def meaning(self, machine: Machine) -> None:
        if self.half != "wait":
            machine.come("cluster")
        if not self.half.startswith("arrive"):
            machine.meet("cluster")


@register
@dataclass(frozen=True)
class GridSync(AcrossBlocks):
    """`tl.sync_grid()`: all threads of the grid meet; what each wrote to global memory before is seen by all afterwards.

    `arrived`: a number in global memory, 0 at first, by which blocks count each other; the compiler gives it.
    """

    NAME: ClassVar[str] = "tl.sync_grid"
    OPERANDS: ClassVar[tuple[str, ...]] = ("arrived",)

    arrived: Any = None

    def meaning(self, machine: Machine) -> None:
        machine.come("grid")
        machine.meet("grid")
