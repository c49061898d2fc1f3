"""The order of blocks of unequal work: the longest begin first, so that the short ones fill the end of a launch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tvm import ir
from tvm import tirx as tir
from tvm.sym import Analyzer

from tile_compiler.loops.affine import depends
from tile_compiler.ranges import reads_memory
from tile_compiler.rewrite import map_kernels, substitute
from tile_compiler.simt.context import SimtContext
from tilelang.ir import tile_ir

IN_ORDER = "tl.disable_longest_first"
SAMPLES = 16  # blocks of an axis that are looked at
TYPICAL = 4096  # what dimensions that are not known count as


def longest_first(func: tir.PrimFunc, ctx: SimtContext) -> tir.PrimFunc:
    """Number the blocks of an axis backwards where loops run longer for later blocks, and for none shorter.

    before:     kernel(grid = (bx: 32)): for k in bx + 1: ...
    after:      kernel(grid = (block_bx: 32)): bx = 31 - block_bx;  for k in bx + 1: ...

    As the hardware hands out blocks in the order of their numbers, the last blocks of the user's order, those of a causal
    mask's last rows, would begin when all others have ended. Trip counts are compared at some blocks of the axis, with
    dimensions that are not known taken as 4096: it is a wish for speed, any order of blocks is right. Left alone are kernels
    with an order of the user's (`T.use_swizzle`), and those that wait in a `while`, perhaps for blocks before them.
    """
    if ctx.options.get(IN_ORDER):
        return func

    def rule(kernel: tile_ir.Kernel) -> tile_ir.Kernel:
        given = kernel.index in ctx.clusters or ctx.panels.get(kernel.index) is not None
        if given or any(tile_ir.walk(kernel.body, tir.While)):
            return kernel
        lengths = list(_trip_counts(kernel))
        grid, binds = [], []
        for var, extent in kernel.grid:
            if not _grows(var, extent, lengths):
                grid.append((var, extent))
                continue
            number = tir.Var(f"block_{var.name}", str(var.ty))
            grid.append((number, extent))
            binds.append(tir.Bind(var, extent - 1 - number, span=kernel.span))
            ctx.report.note(kernel.span, f"blocks run backwards along {var.name}: the longest begin first")
        if not binds:
            return kernel
        body = tile_ir.sequence([*binds, *tile_ir.statements(kernel.body)])
        return tile_ir.Kernel(kernel.index, tuple(grid), kernel.threads, body, kernel.span)

    return map_kernels(func, rule)


def _trip_counts(kernel: tile_ir.Kernel) -> Iterator[Any]:
    """The trip counts of loops that memory has no part in, in terms of the kernel's variables."""
    values: dict[Any, Any] = {}
    for node in tile_ir.walk(kernel.body, tir.Bind, tir.For):
        if isinstance(node, tir.Bind):
            if not reads_memory(node.value):
                values[node.var] = substitute(node.value, values)
        elif tile_ir.static(node.extent) is None and not reads_memory(node.extent):
            yield substitute(node.extent, values)


def _grows(var: Any, extent: Any, lengths: list[Any]) -> bool:
    """Whether some trip count grows with a block's number along an axis, and none shrinks."""
    concerned = [n for n in lengths if depends(n, {var})]
    if not concerned:
        return False
    analyzer = Analyzer()

    def at(value: Any, number: int) -> int | None:
        names = {n for n in tile_ir.walk(tir.Evaluate(value), ir.Var) if not n.same_as(var)}
        typical = {n: tir.const(TYPICAL, str(n.ty)) for n in names if str(n.ty).startswith("int")}
        return tile_ir.static(analyzer.simplify(substitute(value, {**typical, var: tir.const(number, str(var.ty))})))

    last = (at(extent, 0) or 1) - 1
    numbers = sorted({last * n // SAMPLES for n in range(SAMPLES + 1)})
    counts = [[at(value, number) for number in numbers] for value in concerned]
    known = [[c for c in row if c is not None] for row in counts]
    if any(len(row) < len(numbers) for row in known):
        return False
    rising = all(a <= b for row in known for a, b in pairwise(row))
    return rising and any(row[0] < row[-1] for row in known)
