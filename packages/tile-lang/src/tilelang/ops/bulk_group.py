"""Groups of bulk stores (PTX ISA, "cp.async.bulk.commit_group, cp.async.bulk.wait_group"): each thread has its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.ops.base import Machine, ThreadOp, register


@register
@dataclass(frozen=True)
class BulkCommit(ThreadOp):
    """`tl.bulk_commit()`: the stores that the thread has started since the last commit form a group."""

    NAME: ClassVar[str] = "tl.bulk_commit"

    def meaning(self, machine: Machine) -> None:
        return  # a store has been done when it was started


@register
@dataclass(frozen=True)
class BulkWait(ThreadOp):
    """`tl.bulk_wait()`: until at most the `pending` newest groups of the thread are under way.

    `read`: until the others have read their shared memory, which may then be written again.
    """

    NAME: ClassVar[str] = "tl.bulk_wait"

    pending: int = 0
    read: bool = False

    def meaning(self, machine: Machine) -> None:
        return
