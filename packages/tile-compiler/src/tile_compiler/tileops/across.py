"""Barriers between blocks on a target whose blocks run in any order, and to their end."""

from __future__ import annotations

from typing import Any

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.tileops.site import Site
from tilelang.ops import ClusterSync, GridSync


def lower_cluster_sync(op: ClusterSync, site: Site) -> Any:
    """Raises UnsupportedOnTarget: blocks run in any order, and to their end."""
    raise UnsupportedOnTarget(
        "T.cluster_sync on a target without clusters",
        at=site.span,
        expected="cuda -arch=sm_90a",
        repair='two kernels, one after the other; execution="emulate" runs the GPU\'s text here',
    )


def lower_grid_sync(op: GridSync, site: Site) -> Any:
    """Raises UnsupportedOnTarget: kernels have been cut in two at the barriers of the grid that stand alone
    (`grid_barriers.split_at_barriers`)."""
    raise UnsupportedOnTarget(
        "T.sync_grid inside of other statements on a target that cuts kernels at it",
        at=site.span,
        expected="a barrier between the statements of T.Kernel, or a CUDA device",
        repair="two kernels, one after the other",
    )
