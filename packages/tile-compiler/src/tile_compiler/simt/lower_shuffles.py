"""Values of other threads of a warp: by the hardware's shuffles."""

from __future__ import annotations

from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.rewrite import is_call, map_kernels
from tile_compiler.simt.context import SimtContext
from tilelang.ir import tile_ir
from tilelang.ops.shuffle import SHUFFLE


def lower_shuffles(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Threads are named by their lane in the hardware's warp, which may be larger than the 32 threads of the language's.

    before:     y = T.tl.shuffle(x, n)
    after:      y = T.call_extern("tl::shfl_idx", x, n % 32)
    """

    def lowered(node: Any) -> Any:
        if not is_call(node, SHUFFLE):
            return node
        value, source = node.args
        lane = tir.floormod(source, tir.const(ctx.arch.warp, "int32"))
        return tir.call_extern(str(node.ty), "tl::shfl_idx", value, lane)

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        body = tile_ir.map_nodes(kernel.body, (ir.Call, lowered))
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)
