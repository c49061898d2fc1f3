"""What every thread of a block would store in one place of a tensor, one of them stores."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.ranges import conjunction
from tile_compiler.rewrite import Rewriter, map_kernels
from tile_compiler.simt.block_memory import is_role
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.nests import is_global
from tile_compiler.simt.uniformity import Uniformity
from tilelang.ir import tile_ir


def store_once(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """A store that all threads come to, with one address and one value, is the first thread's.

    before:     for i in range(count): slots[first + i] = group
    after:      for i in range(count):
                    if tx == 0: slots[first + i] = group

    So what a block stores one after the other comes in that order without barriers: stores of several threads to one place
    have none, even where each makes all of them. And memory gets one store, not one from each warp.
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        if (kernel.num_threads or 1) == 1:
            return kernel
        body = _Once(kernel).body(kernel.body)
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


class _Once(Rewriter):
    """Goes down to what all threads come to."""

    def __init__(self, kernel: tile_ir.Kernel) -> None:
        self.uniform = Uniformity(kernel)
        self.first = conjunction(
            [tir.EQ(var, tir.const(0, str(var.ty))) for var, size in kernel.threads if int(size) > 1]
        )

    def store(self, node: tir.BufferStore) -> Any:
        if not is_global(node.buffer) or any(self.uniform.varies(part) for part in (node.value, *node.indices)):
            return node
        return tir.IfThenElse(self.first, node, None, span=node.span)

    def loop(self, node: tir.For) -> Any:
        apart = self.uniform.varies(node.min) or self.uniform.varies(node.extent) or self.uniform.part(node)
        return node if apart else super().loop(node)

    def while_loop(self, node: tir.While) -> Any:
        return node if self.uniform.varies(node.condition) or self.uniform.part(node) else super().while_loop(node)

    def branch(self, node: tir.IfThenElse) -> Any:
        return node if self.uniform.varies(node.condition) else super().branch(node)

    def attribute(self, node: tir.AttrStmt) -> Any:
        alone = is_role(node) or tile_ir.as_thread_group(node) is not None or str(node.attr_key) == tile_ir.LEADER
        return node if alone else super().attribute(node)
