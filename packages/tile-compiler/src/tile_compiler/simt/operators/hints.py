"""Hints and `T.import_source`: no code of their own."""

from __future__ import annotations

from typing import Any

from tile_compiler.simt.operators.expand import Expansion
from tile_compiler.simt.plan_clusters import WISH
from tile_compiler.simt.rasterize_grid import Panels
from tilelang.ir import tile_ir
from tilelang.ops import Hint, ImportSource, Prefetch


def expand_hint(op: Hint, to: Expansion) -> Any:
    """`tl.hint()` -> nothing; `rasterize_grid` follows the wish of `T.use_swizzle`, and the report says what became of it."""
    if op.kind in ("no_set_max_nreg", "disable_warp_group_reg_alloc"):
        to.ctx.fixed_registers.add(to.kernel.index)
        return tile_ir.sequence([])
    if op.kind == WISH:
        return tile_ir.sequence([])  # `plan_clusters` has said what became of it
    panels = Panels.of(op) if op.kind == "use_swizzle" else None
    if panels is None:
        to.ctx.report.note(to.span, f"{op.kind} has no effect on this target")
    elif len(to.kernel.grid) < 2:
        to.ctx.report.note(to.span, "use_swizzle has no effect on a grid of one axis")
    else:
        to.ctx.panels[to.kernel.index] = panels
        to.ctx.report.note(to.span, f"blocks run in panels of {panels.size}, by {panels.order}")
    return tile_ir.sequence([])


def expand_prefetch(op: Prefetch, to: Expansion) -> Any:
    """`tl.prefetch(tile)` -> nothing: blocks that wait leave a GPU's memory to others."""
    to.ctx.report.note(to.span, "T.prefetch has no effect on this target")
    return tile_ir.sequence([])


def expand_import_source(op: ImportSource, to: Expansion) -> Any:
    """`tl.import_source()` -> nothing here; the text stands above the kernels, once."""
    if op.source not in to.ctx.sources:
        to.ctx.sources.append(op.source)
    return tile_ir.sequence([])
