"""Clusters: which kernels run in groups of blocks that share tiles."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx as tir

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.grid_barriers import has_grid_barriers
from tile_compiler.passes.lower_tile_ops import is_tile_operator
from tile_compiler.ranges import Ranges
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.nests import int32
from tile_compiler.simt.thread_values import Unknown
from tile_compiler.simt.tile_order import bytes_shared, is_pipelined
from tilelang import ops
from tilelang.ir import tile_ir

WISH = "cluster_dims"


@dataclass(frozen=True)
class Cluster:
    """So many neighbouring blocks along each axis of the grid (`dims`, x first) run at the same time."""

    dims: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.dims)

    @property
    def axis(self) -> int | None:
        """The axis of the grid along which its blocks lie; None if they lie along several."""
        longer = [n for n, d in enumerate(self.dims) if d > 1]
        return longer[0] if len(longer) == 1 else None

    def rank(self, kernel: tile_ir.Kernel) -> Any:
        """The block's number in its cluster, in terms of the grid's variables; for a cluster along one axis."""
        assert self.axis is not None
        (var, _) = kernel.grid[self.axis]
        number = var if str(var.ty) == "int32" else tir.Cast("int32", var)
        return tir.floormod(number, int32(self.size))

    @property
    def launched(self) -> list[int]:
        """What the manifest says."""
        return [*self.dims, 1, 1, 1][:3]


def wished(kernel: tile_ir.Kernel) -> Cluster | None:
    """What `T.Kernel(cluster_dims=)` asks for."""
    for node in tile_ir.walk(kernel.body, tir.Evaluate):
        op = ops.parse(node.value) if is_tile_operator(node) else None
        if isinstance(op, ops.Hint) and op.kind == WISH:
            return Cluster(tuple(json.loads(op.settings)["dims"]))
    return None


def plan_clusters(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Decide which kernels are launched in clusters: `ctx.clusters`.

    before, after: the same function.

    A cluster is whole, so the grid must be a multiple of it in every call that the code serves: for dynamic extents the
    launch variant for whole tiles promises that (`tile_compiler.variants`), and the others run without clusters.
    """
    for kernel in tile_ir.kernels(func):
        cluster = wished(kernel)
        if cluster is None:
            _note_what_is_shared(kernel, ctx)
            continue
        reason = _reason(func, kernel, cluster, ctx)
        if reason:
            _refuse_users(kernel, reason)
            ctx.report.note(kernel.span, f"no clusters: {reason}")
            continue
        ctx.clusters[kernel.index] = cluster
        ctx.report.note(kernel.span, f"clusters of {' x '.join(map(str, cluster.dims))} blocks")
    return func


def _note_what_is_shared(kernel: tile_ir.Kernel, ctx: SimtContext) -> None:
    """Tell the user what clusters would save that he did not ask for, and why they are no default."""
    if not ctx.arch.has_tma or not any(is_pipelined(n) for n in tile_ir.walk(kernel.body, tir.For)):
        return
    for axis, (_, extent) in enumerate(kernel.grid):
        try:
            size, common = bytes_shared(kernel, axis) if tile_ir.static(extent) != 1 else (0, 0)
        except Unknown:
            continue
        if common:
            ctx.report.note(
                kernel.span,
                f"no clusters, as none are asked for: two blocks along {'xyz'[axis]} have {common} of the {size} bytes of a "
                "step in common, which gained products nothing when it was measured (docs/decisions/0014)",
            )


def _refuse_users(kernel: tile_ir.Kernel, reason: str) -> None:
    """Raises UnsupportedOnTarget for an operator that a kernel without clusters cannot have."""
    for node in tile_ir.walk(kernel.body, tir.Evaluate):
        op = ops.parse(node.value) if is_tile_operator(node) else None
        if isinstance(op, ops.ClusterSync) or (isinstance(op, ops.MbarrierArrive) and op.rank is not None):
            what = "T.cluster_sync" if isinstance(op, ops.ClusterSync) else "T.mbarrier_arrive(cta_id=)"
            raise UnsupportedOnTarget(
                f"{what}, and the kernel has no clusters",
                at=node.span,
                found=reason,
                expected="cuda -arch=sm_90a, and a grid that is a multiple of cluster_dims",
                repair="a grid of T.ceildiv(..., cluster) * cluster blocks, of which the last do nothing",
            )


def _reason(func: tir.PrimFunc, kernel: tile_ir.Kernel, cluster: Cluster, ctx: SimtContext) -> str:
    """Why a kernel has no clusters; "" if it has."""
    if has_grid_barriers(kernel):
        return "all blocks of the grid meet at T.sync_grid, and a cooperative launch has none"
    if not ctx.arch.has_tma:
        return f"{ctx.arch.name} has none (sm_90a has)"
    ranges = Ranges.of_kernel(func, kernel)
    for (_, extent), count in zip(kernel.grid, cluster.dims):
        known = tile_ir.static(extent)
        whole = known % count == 0 if known is not None else ranges.proves(tir.floormod(extent, count) == 0)
        if not whole:
            return f"the grid has {extent} blocks along an axis, perhaps no multiple of {count}"
    return ""
