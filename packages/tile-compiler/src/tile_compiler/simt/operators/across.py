"""Barriers between blocks."""

from __future__ import annotations

from typing import Any

from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.barrier import barrier_address, releasing
from tile_compiler.simt.operators.nests import run
from tilelang.ops import ClusterSync, GridSync


def lower_cluster_sync(op: ClusterSync, low: Lowering) -> Any:
    """`tl.cluster_sync()` -> `tl::cluster_sync()`, or one of its halves; `plan_clusters` has seen to the clusters."""
    call = run(f"tl::cluster_{op.half or 'sync'}", span=low.span)
    return call if op.half == "wait" else releasing(call)


def lower_grid_sync(op: GridSync, low: Lowering) -> Any:
    """`tl.sync_grid(arrived[0])` -> `tl::sync_grid(&arrived[0])`"""
    return releasing(run("tl::sync_grid", barrier_address(op.arrived), span=low.span))
