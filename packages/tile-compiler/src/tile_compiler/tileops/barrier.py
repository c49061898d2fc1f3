"""mbarriers on a target that runs a block in one thread: there is nobody to wait for."""

from __future__ import annotations

from typing import Any

from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.tileops.site import Site
from tilelang.ops import BarrierOp


def lower_barrier(op: BarrierOp, site: Site) -> Any:
    """Raises UnsupportedOnTarget: threads that wait for each other at mbarriers cannot be put in sequence."""
    raise UnsupportedOnTarget(
        f"{op.NAME.replace('tl.', 'T.')} on a target without mbarriers",
        at=site.span,
        expected="cuda -arch=sm_90a",
        repair='T.copy and T.sync_threads, which every target has; execution="emulate" runs the GPU\'s text here',
    )
