"""Barriers between the blocks of a cluster on a target that has none."""

from __future__ import annotations

from typing import Any

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.tileops.site import Site
from tilelang.ops import ClusterSync


def lower_cluster_sync(op: ClusterSync, site: Site) -> Any:
    """Raises UnsupportedOnTarget: blocks run in any order, and to their end."""
    raise UnsupportedOnTarget(
        "T.cluster_sync on a target without clusters",
        at=site.span,
        expected="cuda -arch=sm_90a",
        repair='two kernels, one after the other; execution="emulate" runs the GPU\'s text here',
    )
