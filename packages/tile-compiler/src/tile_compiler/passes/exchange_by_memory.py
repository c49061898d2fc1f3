"""Values of other threads of a warp, on a target that runs a block in one thread: by memory."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.rewrite import Rewriter, is_call, map_kernels
from tile_compiler.simt.materialize_threads import linear_thread
from tilelang.ir import tile_ir
from tilelang.ops.shuffle import SHUFFLE


def exchange_by_memory(func: tir.PrimFunc, ctx: CompileContext) -> tir.PrimFunc:
    """Every thread leaves its value where the others find it; `serialize_threads` cuts between the two.

    before:     if tx < 32: y = T.tl.shuffle(x, n)
    after:      y_of = alloc((128,), shared)
                if tx < 32: y_of[tx] = x;  y = y_of[n]
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        exchange = _Exchange(kernel)
        body = exchange.body(kernel.body)
        whole = tile_ir.sequence([*exchange.places, *tile_ir.statements(body)])
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, whole, kernel.span)

    return map_kernels(func, rule)


class _Exchange(Rewriter):
    def __init__(self, kernel: tile_ir.Kernel) -> None:
        self.kernel = kernel
        self.places: list[Any] = []  # at the kernel's start, as a condition on the thread may hold an exchange

    def bind(self, node: tir.Bind) -> Any:
        if not is_call(node.value, SHUFFLE):
            return node
        value, source = node.value.args
        count = tir.const(self.kernel.num_threads or 1, "int32")
        place = tir.decl_buffer([count], str(node.value.ty), name=f"{node.var.name}_of", scope="shared", layout=None)
        left = tir.BufferStore(place, value, [linear_thread(self.kernel)], span=node.span)
        self.places.append(tir.AllocBuffer(place, span=node.span))
        return tile_ir.sequence([left, tir.Bind(node.var, tir.BufferLoad(place, [source]), span=node.span)])
