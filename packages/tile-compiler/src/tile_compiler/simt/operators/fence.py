"""`T.fence_proxy_async`: a fence where there are two ways to shared memory."""

from __future__ import annotations

from typing import Any

from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.nests import run
from tilelang.ir import tile_ir
from tilelang.ops import FenceProxyAsync


def lower_fence(op: FenceProxyAsync, low: Lowering) -> Any:
    """`tl.fence_proxy_async()` -> `tl::fence_proxy_async_shared()`, or nothing where all work sees memory alike"""
    return run("tl::fence_proxy_async_shared", span=low.span) if low.ctx.arch.has_tma else tile_ir.sequence([])
