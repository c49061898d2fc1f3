"""Waits for products on a target where they are done when they are issued."""

from __future__ import annotations

from typing import Any

from tile_compiler.tileops.site import Site
from tilelang.ir import tile_ir
from tilelang.ops import WaitWgmma


def lower_wait_wgmma(op: WaitWgmma, site: Site) -> Any:
    """`tl.wait_wgmma()` -> nothing"""
    return tile_ir.sequence([])
