"""Register limits, and waits for products, on a target whose threads have no registers of their own and whose products
are done when they are issued."""

from __future__ import annotations

from typing import Any

from tile_compiler.tileops.site import Site
from tilelang.ir import tile_ir
from tilelang.ops import SetMaxNreg, WaitWgmma


def lower_set_max_nreg(op: SetMaxNreg, site: Site) -> Any:
    """`tl.set_max_nreg()` -> nothing"""
    return tile_ir.sequence([])


def lower_wait_wgmma(op: WaitWgmma, site: Site) -> Any:
    """`tl.wait_wgmma()` -> nothing"""
    return tile_ir.sequence([])
