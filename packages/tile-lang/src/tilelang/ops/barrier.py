"""mbarriers (PTX ISA, "mbarrier"): barriers in shared memory that count arrivals of threads and bytes of bulk copies.

A barrier is one element of a `uint64` buffer of scope `shared.barrier`, whose allocation says how many arrivals end
each of its phases (`tl.arrivals`). A phase also waits for the bytes that were announced and have not been copied yet.
Phases are known by their parity: 0 for the first, 1 for the second, 0 for the third.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilelang.ops.base import Machine, ThreadOp, register


@dataclass(frozen=True)
class BarrierOp(ThreadOp):
    """What a thread does to a barrier: `barrier` is a region of one element."""

    barrier: Any


@register
@dataclass(frozen=True)
class MbarrierArrive(BarrierOp):
    """`tl.mbarrier_arrive(barrier)`: every thread that comes by arrives `count` times, and releases what it wrote.

    `rank`: at the barrier of that block of the cluster.
    """

    NAME: ClassVar[str] = "tl.mbarrier_arrive"
    OPERANDS: ClassVar[tuple[str, ...]] = ("barrier", "rank")

    rank: Any = None
    count: int = 1

    def meaning(self, machine: Machine) -> None:
        machine.arrive(self.barrier, self.count, self.rank)


@register
@dataclass(frozen=True)
class MbarrierExpectTx(BarrierOp):
    """`tl.mbarrier_expect_tx(barrier, bytes)`: the phase ends only after `bytes` more have been copied.

    `arrive`: the thread also arrives once, after it has announced the bytes.
    """

    NAME: ClassVar[str] = "tl.mbarrier_expect_tx"
    OPERANDS: ClassVar[tuple[str, ...]] = ("barrier", "bytes")

    bytes: Any
    arrive: bool = False

    def meaning(self, machine: Machine) -> None:
        machine.expect(self.barrier, int(machine.evaluate(self.bytes)))
        if self.arrive:
            machine.arrive(self.barrier, 1)


@register
@dataclass(frozen=True)
class MbarrierWait(BarrierOp):
    """`tl.mbarrier_wait(barrier, parity)`: until the phase of that parity has ended.

    Waiting for parity 1 of a fresh barrier returns at once. What was released to the phase is visible afterwards.
    """

    NAME: ClassVar[str] = "tl.mbarrier_wait"
    OPERANDS: ClassVar[tuple[str, ...]] = ("barrier", "parity")

    parity: Any

    def meaning(self, machine: Machine) -> None:
        machine.wait(self.barrier, self.parity)
