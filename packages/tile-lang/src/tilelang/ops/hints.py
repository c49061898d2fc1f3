"""Scheduling hints and declarations: they change no result and a target without a use for one ignores it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilelang.ops.base import Machine, TileOp, register


@register
@dataclass(frozen=True)
class Hint(TileOp):
    """`tl.hint()`: a scheduling hint by `kind`, its settings as JSON text in `settings`.

    Kinds: use_swizzle {panel_size, order, enable}, cluster_dims {dims: one number for each axis of the grid}, and
    the switches of batch 2.
    """

    NAME: ClassVar[str] = "tl.hint"

    kind: str = ""
    settings: str = "{}"

    def meaning(self, machine: Machine) -> None:
        return


@register
@dataclass(frozen=True)
class AnnotateLayout(TileOp):
    """`tl.annotate_layout(buffer)`: the layout of a buffer, as the JSON text of a Layout or Fragment."""

    NAME: ClassVar[str] = "tl.annotate_layout"
    OPERANDS: ClassVar[tuple[str, ...]] = ("buffer",)

    buffer: Any
    layout: str = ""

    def meaning(self, machine: Machine) -> None:
        return


@register
@dataclass(frozen=True)
class SafeValue(TileOp):
    """`tl.safe_value(buffer, value)`: what reads outside `buffer` give instead of 0, in this kernel."""

    NAME: ClassVar[str] = "tl.safe_value"
    OPERANDS: ClassVar[tuple[str, ...]] = ("buffer", "value")

    buffer: Any
    value: Any

    def meaning(self, machine: Machine) -> None:
        machine.set_safe_value(self.buffer.source, machine.evaluate(self.value))


@register
@dataclass(frozen=True)
class ImportSource(TileOp):
    """`tl.import_source()`: C, CUDA or HIP source text placed above the kernel, for `T.call_extern`."""

    NAME: ClassVar[str] = "tl.import_source"

    source: str = ""

    def meaning(self, machine: Machine) -> None:
        return
