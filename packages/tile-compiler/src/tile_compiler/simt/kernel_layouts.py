"""The result of layout inference for one kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tile_compiler.simt.distribution import Distribution
from tile_compiler.simt.layout.equations import Rule, Solution, Unknown, Value
from tile_compiler.simt.operators.nests import static_shape
from tilelang.layout import make_linear_layout


@dataclass
class KernelLayouts:
    """What inference found for one kernel: a value for each buffer; the rule of each site, in the order of a walk.

    `views` maps a view of a fragment to the fragment whose registers it shows.
    """

    buffers: dict[Any, Unknown] = field(default_factory=dict)
    rules: list[Rule | None] = field(default_factory=list)
    views: dict[Any, Any] = field(default_factory=dict)
    solution: Solution = field(default_factory=Solution)

    def of(self, buffer: Any) -> Value:
        return self.solution.values[self.buffers[buffer]]

    def add_linear(self, buffer: Any) -> None:
        """A new shared buffer, row-major."""
        shape = static_shape(buffer)
        assert shape is not None
        unknown = Unknown(str(buffer.name), shape, buffer)
        self.buffers[buffer] = unknown
        self.solution.values[unknown] = make_linear_layout(shape)

    def text(self) -> str:
        """One line for each buffer."""
        lines = []
        for buffer, unknown in self.buffers.items():
            value = self.solution.values[unknown]
            shown = value.describe() if isinstance(value, Distribution) else str(value)
            lines.append(f"{buffer.name}: {shown}")
        return "\n".join(lines)
