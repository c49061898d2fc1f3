"""The place where a tile operator is expanded: temporaries, and what shares storage with what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx as tir

from tile_compiler.ranges import Ranges
from tile_compiler.simt.context import SimtContext
from tilelang.ir import tile_ir


@dataclass
class Expansion:
    """One operator's surroundings. `roots` maps an alias to the buffer whose storage it shares."""

    ctx: SimtContext
    kernel: tile_ir.Kernel
    ranges: Ranges
    roots: dict[Any, Any]
    span: Any = None
    temporaries: list[Any] = field(default_factory=list)

    @property
    def threads(self) -> int:
        return int(self.kernel.num_threads or 1)

    def temporary(self, shape: Sequence[Any], dtype: str, name: str, scope: str = "local.fragment") -> Any:
        """A new on-chip buffer, allocated before the operator."""
        buffer = tir.decl_buffer(list(shape), dtype, name=name, scope=scope, layout=None)
        self.temporaries.append(tir.AllocBuffer(buffer))
        return buffer

    def share_storage(self, a: Any, b: Any) -> bool:
        """Whether two regions lie in one buffer's storage."""
        return bool(self.roots.get(a.source, a.source).same_as(self.roots.get(b.source, b.source)))
