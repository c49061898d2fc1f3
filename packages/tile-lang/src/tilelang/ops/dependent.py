"""Launches that begin before the one in front of them has ended (PTX ISA, "griddepcontrol")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilelang.ops.base import Machine, ThreadOp, register


@register
@dataclass(frozen=True)
class DependentLaunch(ThreadOp):
    """`tl.dependent_launch()`: the thread waits until the launches before this one have ended; with `trigger`, the launch
    after this one may begin once all blocks have come by or ended. Launches in order need neither."""

    NAME: ClassVar[str] = "tl.dependent_launch"

    trigger: bool = False

    def meaning(self, machine: Machine) -> None:
        return  # launches are over before the next one begins
