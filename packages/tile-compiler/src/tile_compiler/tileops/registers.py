"""Register limits on a target whose threads have no registers of their own."""

from __future__ import annotations

from typing import Any

from tile_compiler.tileops.site import Site
from tilelang.ir import tile_ir
from tilelang.ops import SetMaxNreg


def lower_set_max_nreg(op: SetMaxNreg, site: Site) -> Any:
    """`tl.set_max_nreg()` -> nothing"""
    return tile_ir.sequence([])
