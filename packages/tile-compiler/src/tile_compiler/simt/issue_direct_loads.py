"""Copies straight to LDS become the instruction of a wave, and waits for groups of them become numbers of loads."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.rewrite import Rewriter, is_call, map_kernels, substitute
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.load_to_lds import BYTES
from tile_compiler.simt.operators.nests import run
from tilelang.ir import tile_ir

MOST = 63  # loads in flight that a wait can name ("CDNA3 ISA", S_WAITCNT: six bits)


def issue_direct_loads(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Only on architectures that load to LDS. A wave's loads end in order, so a wait is for all but the newest n.

    before:     for c in T.unroll(8): tl::cp_async<4>(s[c * 256 + tx * 2], A[...], True)
                tl::cp_async_commit();  tl::cp_async_wait<1>(0)
    after:      for c in T.unroll(8): tl::load_to_lds<4>(s[c * 256 + tx // 64 * 128], A[...])
                tl::wait_loads<8>()

    The arguments of a wait are the tiles (by their places in `ctx.waited`) whose copies have surely been started in the
    groups that may be pending: at least so many loads are newer than those that it is for. A tile that is copied
    through registers after all has no loads in flight.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        body = _Issue(kernel, ctx).body(kernel.body)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule) if ctx.arch.has_load_to_lds else func


class _Issue(Rewriter):
    def __init__(self, kernel: tile_ir.Kernel, ctx: SimtContext) -> None:
        self.thread, self.ctx = kernel.threads[0][0], ctx

    def evaluate(self, node: tir.Evaluate) -> Any:
        name = str(node.value.args[0].value) if is_call(node.value, "tirx.call_extern") else ""
        if name == f"tl::cp_async<{BYTES}>":
            target, origin = node.value.args[1:3]
            wave = self.thread // self.ctx.arch.warp * self.ctx.arch.warp
            return run(f"tl::load_to_lds<{BYTES}>", substitute(target, {self.thread: wave}), origin, span=node.span)
        if name == "tl::cp_async_commit":
            return None
        if name.startswith("tl::cp_async_wait<"):
            tiles = [self.ctx.waited[int(a.value)] for a in node.value.args[1:]]
            newer = min(MOST, sum(self.ctx.direct_loads.get(tile, 0) for tile in tiles))
            return run(f"tl::wait_loads<{newer}>", span=node.span) if self.ctx.direct_loads else None
        return node
