"""`T.pdl_sync` and `T.pdl_trigger`: Hopper's launches may overlap."""

from __future__ import annotations

from typing import Any

from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.nests import run
from tilelang.ir import tile_ir
from tilelang.ops import DependentLaunch

WAIT, LAUNCH = "tl::grid_dependency_wait", "tl::grid_dependency_launch"


def lower_dependent(op: DependentLaunch, low: Lowering) -> Any:
    """`tl.dependent_launch()` -> `tl::grid_dependency_wait()` or `_launch()`; nothing where launches run one by one"""
    return run(LAUNCH if op.trigger else WAIT, span=low.span) if low.ctx.arch.has_tma else tile_ir.sequence([])
