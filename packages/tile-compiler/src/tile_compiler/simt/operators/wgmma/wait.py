"""`T.wait_wgmma`: products under way are waited for."""

from __future__ import annotations

from typing import Any

from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.nests import run
from tilelang.ir import tile_ir
from tilelang.ops import WaitWgmma


def lower_wait_wgmma(op: WaitWgmma, low: Lowering) -> Any:
    """`tl.wait_wgmma(pending=n)` -> `tl::wgmma_wait<n>()`; nothing where products are not asynchronous"""
    if not low.ctx.arch.has_wgmma:
        return tile_ir.sequence([])
    return run(f"tl::wgmma_wait<{op.pending}>", span=low.span)
