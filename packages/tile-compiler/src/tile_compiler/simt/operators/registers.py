"""`T.set_max_nreg`: registers move between warpgroups."""

from __future__ import annotations

from typing import Any

from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.nests import run
from tilelang.ir import tile_ir
from tilelang.ops import SetMaxNreg


def lower_set_max_nreg(op: SetMaxNreg, low: Lowering) -> Any:
    """`tl.set_max_nreg(count=n)` -> `tl::register_limit_increase<n>()` or `_decrease<n>()`; nothing on other targets"""
    if not low.ctx.arch.has_tma:
        return tile_ir.sequence([])
    return run(f"tl::register_limit_{'increase' if op.increase else 'decrease'}<{op.count}>", span=low.span)
