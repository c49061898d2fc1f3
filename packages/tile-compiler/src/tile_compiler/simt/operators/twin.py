"""The GPU half of a tile operator, and the place where its layout rule is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.layout.equations import Rule, Unknown
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.expand import Expansion
from tilelang.ir import tile_ir


@dataclass(frozen=True)
class RuleSite:
    """One operator during layout inference: `unknown(buffer)` is the unknown of a fragment or shared buffer."""

    unknown: Callable[[Any], Unknown]
    threads: int
    ctx: SimtContext
    span: Any = None


@dataclass(frozen=True)
class Twin:
    """How an operator is done on a GPU: the other half of its file in `tilelang/ops`.

    `expand(op, expansion)`: before layouts are inferred, the statements that replace the operator: parallel nests,
    other operators by `expansion.expand`, or the operator itself over operands that it can work with. None: it stays.
    `rule(op, site)`: what it demands of the layouts of its operands. None: nothing.
    `lower(op, lowering)`: what one thread does, when all layouts are known. None: the expansion leaves none of it.
    `title(op)`: the operator as a user writes it, for comments and messages. None: no comment above its statements.
    """

    expand: Callable[[Any, Expansion], Any] | None = None
    rule: Callable[[Any, RuleSite], Rule] | None = None
    lower: Callable[[Any, Lowering], Any] | None = None
    title: Callable[[Any], str] | None = None


def nothing(op: Any, low: Lowering) -> Any:
    """The lowering of a declaration: passes before have used it."""
    return tile_ir.sequence([])
