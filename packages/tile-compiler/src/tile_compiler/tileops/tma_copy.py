"""`T.tma_copy` on a target without bulk copies."""

from __future__ import annotations

from typing import Any

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.tileops.site import Site
from tilelang.ops import TmaCopy


def lower_tma_copy(op: TmaCopy, site: Site) -> Any:
    """Raises UnsupportedOnTarget: who reads the tile waits at an mbarrier."""
    raise UnsupportedOnTarget(
        "T.tma_copy on a target without a tensor memory accelerator",
        at=site.span,
        expected="cuda -arch=sm_90a",
        repair="T.copy, which every target has",
    )
