"""The place where a tile operator is expanded: temporaries, and what shares storage with what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx as tir

from tile_compiler.ranges import Ranges
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.uniformity import Uniformity
from tilelang.ir import tile_ir
from tilelang.ops import TileOp


@dataclass
class Expansion:
    """One operator's surroundings. `roots` maps an alias to the buffer whose storage it shares.

    `in_nest`: it stands inside T.Parallel; `by_thread`: there, or under a condition that threads disagree on.
    """

    ctx: SimtContext
    kernel: tile_ir.Kernel
    ranges: Ranges
    roots: dict[Any, Any]
    expand_other: Callable[[TileOp, Expansion], Any]
    uniformity: Uniformity
    span: Any = None
    in_nest: bool = False
    by_thread: bool = False
    temporaries: list[Any] = field(default_factory=list)

    def expand(self, op: TileOp) -> Any:
        """The statements of another operator at this place: operators can be made of operators."""
        return self.expand_other(op, self)

    def varies(self, value: Any) -> bool:
        """Whether a scalar may differ between the threads of the block."""
        return self.uniformity.varies(value)

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
