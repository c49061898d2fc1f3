"""Waits for products that Hopper's warpgroups compute beside other work (PTX ISA, "wgmma.wait_group")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.ops.base import Machine, ThreadOp, register


@register
@dataclass(frozen=True)
class WaitWgmma(ThreadOp):
    """`tl.wait_wgmma()`: until at most the `pending` newest products of the warpgroup are under way."""

    NAME: ClassVar[str] = "tl.wait_wgmma"

    pending: int = 0

    def meaning(self, machine: Machine) -> None:
        return  # a product has been done when it was issued
