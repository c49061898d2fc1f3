"""Give every kernel its threads."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.context import CompileContext
from tile_compiler.errors import UnsupportedOnTarget
from tile_compiler.rewrite import map_kernels
from tile_compiler.simt.context import DEFAULT_THREADS
from tilelang.ir import tile_ir


def materialize_threads(func: tir.PrimFunc, ctx: CompileContext) -> tir.PrimFunc:
    """A kernel without threads gets 128 along x.

    before:     kernel(grid = (bx: 4)): ...
    after:      kernel(grid = (bx: 4), threads = (tx: 128)): ...
    """

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        threads = kernel.threads
        if not threads:
            threads = ((tir.Var("tx", "int32"), tir.const(DEFAULT_THREADS, "int32")),)
        total = 1
        for _, extent in threads:
            size = tile_ir.static(extent)
            if size is None:
                raise UnsupportedOnTarget("a number of threads that is not constant", at=kernel.span)
            total *= size
        if total > 1024:
            raise UnsupportedOnTarget(
                "T.Kernel has more threads than a block can have",
                at=kernel.span,
                found=f"{total} threads",
                expected="at most 1024 threads in a block",
                repair="T.Kernel(..., threads=128): a thread computes several elements of a tile",
            )
        return tile_ir.Kernel(kernel.index, kernel.grid, threads, kernel.body, kernel.span)

    return map_kernels(func, rule)


def group_kernel(kernel: tile_ir.Kernel, group: tuple[int, int], thread: Any = None) -> tile_ir.Kernel:
    """The kernel as the threads of a group see it: they are the block, numbered from 0 by `thread`."""
    var = kernel.threads[0][0] if thread is None else thread
    threads = ((var, tir.const(group[1], "int32")),)
    return tile_ir.Kernel(kernel.index, kernel.grid, threads, kernel.body, kernel.span)


def linear_thread(kernel: tile_ir.Kernel) -> Any:
    """The number of a thread in its block, x fastest; for one axis its variable itself."""
    number: Any = None
    pitch = 1
    for var, extent in kernel.threads:
        term = var if pitch == 1 else var * pitch
        number = term if number is None else number + term
        pitch *= int(extent)
    return number
