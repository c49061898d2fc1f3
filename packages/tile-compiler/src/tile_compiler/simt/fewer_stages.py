"""Which number of pipeline stages leaves the tiles of a block within its shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx as tir

from tile_compiler.rewrite import Rewriter, map_kernels, remake_loop
from tile_compiler.simt.errors import SharedMemoryOverflow
from tilelang.ir import tile_ir


def stages_that_fit(func: tir.PrimFunc, lower: Callable[[tir.PrimFunc], object]) -> int | None:
    """The largest `num_stages` below the function's own with which `lower`, all passes, finds enough memory; or None."""
    most = max((_stages(n) for k in tile_ir.kernels(func) for n in tile_ir.walk(k.body)), default=0)
    for stages in range(most - 1, -1, -1):
        try:
            lower(_with_stages(func, stages))
        except SharedMemoryOverflow:
            continue
        return stages
    return None


def _stages(node: Any) -> int:
    if isinstance(node, tir.For) and node.annotations and tile_ir.PIPELINED in node.annotations:
        return int(tile_ir.plain(node.annotations[tile_ir.PIPELINED]))
    return 0


def _with_stages(func: tir.PrimFunc, most: int) -> tir.PrimFunc:
    """`func` with no pipelined loop of more than `most` stages."""

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        return tile_ir.Kernel(kernel.index, kernel.grid, kernel.threads, _Fewer(most).body(kernel.body), kernel.span)

    return map_kernels(func, rule)


class _Fewer(Rewriter):
    def __init__(self, most: int) -> None:
        self.most = most

    def loop(self, node: tir.For) -> Any:
        new = super().loop(node)
        if _stages(new) <= self.most:
            return new
        return remake_loop(new, annotations={**dict(new.annotations), tile_ir.PIPELINED: self.most})
