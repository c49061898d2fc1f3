"""`T.tma_copy`: a tile between global and shared memory, by the tensor memory accelerator of sm_90."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from tilelang.ops.base import Machine, ThreadOp, register
from tilelang.ops.copy import Copy


@register
@dataclass(frozen=True)
class TmaCopy(ThreadOp):
    """`tl.tma_copy(src, dst, barrier)`: what `tl.copy` moves, started by one thread and done asynchronously.

    Global to shared memory: the copied bytes count at `barrier` (`ops/barrier.py`), parts out of bounds included; the
    program has announced them there. Shared to global memory, without a barrier: part of the thread's open group of
    bulk stores. Elements have one type on both sides. Every thread that comes by starts a copy: one should.

    `eviction_policy`, what L2 shall do with the lines, is "evict_first", "evict_last" or None.

    `blocks` > 1: the blocks of a cluster of so many all do this copy, of the same source to the same tile of their own.
    Block number `rank` brings one part of `blocks` to all of them, and each block's barrier counts all parts.
    """

    NAME: ClassVar[str] = "tl.tma_copy"
    OPERANDS: ClassVar[tuple[str, ...]] = ("src", "dst", "barrier", "rank")

    src: Any
    dst: Any
    barrier: Any = None
    rank: Any = None
    eviction_policy: str | None = None
    blocks: int = 1

    def reads(self) -> list[Any]:
        return [self.src]

    def writes(self) -> list[Any]:
        return [self.dst]

    def tile_axes(self) -> list[tuple[Any, int, int]]:
        """As `Copy.tile_axes`."""
        return Copy(self.src, self.dst).tile_axes()

    def bytes(self) -> int:
        """What the barrier counts."""
        from tilelang.ir import tile_ir
        from tilelang.ir.dtypes import dtype_of

        kind = dtype_of(tile_ir.dtype_name(self.dst.source))
        return math.prod(int(r.extent) for r in self.dst.region) * kind.bits // 8

    def meaning(self, machine: Machine) -> None:
        Copy(self.src, self.dst).meaning(machine)
        if self.barrier is not None:
            machine.complete(self.barrier, self.bytes())
