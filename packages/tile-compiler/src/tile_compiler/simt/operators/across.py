"""Barriers between blocks."""

from __future__ import annotations

from typing import Any

from tvm import ir

from tile_compiler.rewrite import is_call
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.barrier import barrier_address, releasing
from tile_compiler.simt.operators.nests import run
from tilelang.ir import tile_ir
from tilelang.ops import ClusterSync, GridSync, TmaCopy


def lower_cluster_sync(op: ClusterSync, low: Lowering) -> Any:
    """`tl.cluster_sync()` -> `tl::cluster_sync()`, or one of its halves; `plan_clusters` has seen to the clusters."""
    call = run(f"tl::cluster_{op.half or 'sync'}", span=low.span)
    if op.half == "wait":
        return call
    return tile_ir.sequence([*_written(low), releasing(call)])


def lower_grid_sync(op: GridSync, low: Lowering) -> Any:
    """`tl.sync_grid(arrived[0])` -> `tl::sync_grid(&arrived[0])`"""
    call = run("tl::sync_grid", barrier_address(op.arrived), span=low.span)
    return tile_ir.sequence([*_written(low), releasing(call)])


def _written(low: Lowering) -> list[Any]:
    """In a kernel that copies by TMA: what its stores have written is there, and what threads have stored, for copies too."""
    by_tma = any(is_call(n, TmaCopy.NAME) for n in tile_ir.walk(low.kernel.body, ir.Call))
    return [run(name, span=low.span) for name in ("tl::bulk_wait<0>", "tl::fence_proxy_async") if by_tma]
