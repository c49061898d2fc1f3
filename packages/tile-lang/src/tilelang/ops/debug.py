"""`T.print` and `T.device_assert`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilelang.ops.base import Machine, TileOp, register


@register
@dataclass(frozen=True)
class Print(TileOp):
    """`tl.print(value)`: print a tile (a region) or a scalar once for the block, after `message`."""

    NAME: ClassVar[str] = "tl.print"
    OPERANDS: ClassVar[tuple[str, ...]] = ("value",)

    value: Any
    message: str = ""

    def reads(self) -> list[Any]:
        return [self.value] if hasattr(self.value, "region") else []

    def meaning(self, machine: Machine) -> None:
        shown = machine.load(self.value) if hasattr(self.value, "region") else machine.evaluate(self.value)
        machine.emit(f"{self.message}: {shown}" if self.message else f"{shown}")


@register
@dataclass(frozen=True)
class DeviceAssert(TileOp):
    """`tl.device_assert(condition)`: stop the launch with `message` when the condition is false.

    The condition may differ between threads or iterations; then any false one stops the launch.
    """

    NAME: ClassVar[str] = "tl.device_assert"
    OPERANDS: ClassVar[tuple[str, ...]] = ("condition",)

    condition: Any
    message: str = ""

    def meaning(self, machine: Machine) -> None:
        if not machine.evaluate(self.condition):
            machine.fail(self.message)
