"""The fence between ordinary accesses of shared memory and asynchronous ones (PTX ISA, "Async proxy")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.ops.base import Machine, ThreadOp, register


@register
@dataclass(frozen=True)
class FenceProxyAsync(ThreadOp):
    """`tl.fence_proxy_async()`: what the thread has stored is seen by bulk copies and wgmma that follow a barrier."""

    NAME: ClassVar[str] = "tl.fence_proxy_async"

    def meaning(self, machine: Machine) -> None:
        return  # memory has one view
