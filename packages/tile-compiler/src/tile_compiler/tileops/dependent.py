"""`T.pdl_sync` and `T.pdl_trigger` on a target whose launches run one by one."""

from __future__ import annotations

from typing import Any

from tile_compiler.tileops.site import Site
from tilelang.ir import tile_ir
from tilelang.ops import DependentLaunch


def lower_dependent(op: DependentLaunch, site: Site) -> Any:
    """`tl.dependent_launch()` -> nothing"""
    return tile_ir.sequence([])
