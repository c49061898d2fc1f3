"""Hints and `T.import_source`: no code of their own."""

from __future__ import annotations

from typing import Any

from tile_compiler.simt.operators.expand import Expansion
from tilelang.ir import tile_ir
from tilelang.ops import Hint, ImportSource


def expand_hint(op: Hint, to: Expansion) -> Any:
    """`tl.hint()` -> nothing; the report says so."""
    to.ctx.report.note(to.span, f"{op.kind} has no effect on this target")
    return tile_ir.sequence([])


def expand_import_source(op: ImportSource, to: Expansion) -> Any:
    """`tl.import_source()` -> nothing here; the text stands above the kernels, once."""
    if op.source not in to.ctx.sources:
        to.ctx.sources.append(op.source)
    return tile_ir.sequence([])
