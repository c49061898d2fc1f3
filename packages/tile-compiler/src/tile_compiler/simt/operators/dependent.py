"""`T.pdl_sync` and `T.pdl_trigger`: Hopper's launches may overlap."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.nests import run
from tilelang.ir import tile_ir
from tilelang.ops import DependentLaunch, operator_of

WAIT, LAUNCH = "tl::grid_dependency_wait", "tl::grid_dependency_launch"


def lower_dependent(op: DependentLaunch, low: Lowering) -> Any:
    """`tl.dependent_launch()` -> `tl::grid_dependency_wait()` or `_launch()`; nothing where launches run one by one"""
    return run(LAUNCH if op.trigger else WAIT, span=low.span) if low.ctx.arch.has_tma else tile_ir.sequence([])


def follows_earlier_launches(kernel: tile_ir.Kernel) -> bool:
    """Whether a kernel begins before those are over whose results it may read."""
    return any(isinstance(operator_of(n), DependentLaunch) for n in tile_ir.walk(kernel.body, tir.Evaluate))
