"""Products that run beside the statements after them: which pieces of a loop they are, and what they keep busy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import tirx as tir

from tile_compiler.passes.lower_tile_ops import is_tile_operator
from tile_compiler.simt.context import SimtContext
from tile_compiler.simt.operators.choose_instruction import choose_instruction
from tile_compiler.simt.operators.nests import is_fragment
from tile_compiler.simt.operators.wgmma.tiling import WarpgroupTiling
from tile_compiler.simt.pipeline_schedule import Piece
from tilelang import ops
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of

HEAD = 128  # bytes along k: a row of a swizzled tile, four matrix instructions
LONG = 4 * HEAD


def product_of(stmt: Any) -> ops.Gemm | None:
    """The product that a statement is."""
    op = ops.parse(stmt.value) if is_tile_operator(stmt) else None
    return op if isinstance(op, ops.Gemm) else None


def is_asynchronous(stmt: Any, kernel: tile_ir.Kernel, ctx: SimtContext) -> bool:
    """Whether a statement is a product that a warpgroup issues and waits for later."""
    product = product_of(stmt)
    if product is None:
        return False
    chosen = choose_instruction(product, int(kernel.num_threads or 1), ctx, stmt.value.span or stmt.span)
    return isinstance(chosen.tiles, WarpgroupTiling)


def holds_asynchronous(stmt: Any, kernel: tile_ir.Kernel, ctx: SimtContext) -> bool:
    """Whether such a product is a part of a statement."""
    return any(is_asynchronous(n, kernel, ctx) for n in tile_ir.walk(stmt, tir.Evaluate))


def registers_of(piece: Piece) -> list[Any]:
    """The fragments that an asynchronous product uses until it is waited for."""
    product = product_of(piece.stmt)
    assert product is not None
    return [r.source for r in (product.a, product.b, product.c) if is_fragment(r.source)]


def result_of(piece: Piece) -> Any:
    """The buffer that a product sums into."""
    product = product_of(piece.stmt)
    assert product is not None
    return product.c.source


def head_and_rest(stmt: Any) -> list[Any]:
    """A product that is long along k as two, the first of which takes a few matrix instructions; else `stmt` alone, as
    where registers hold A."""
    product = product_of(stmt)
    assert product is not None
    if is_fragment(product.a.source):
        return [stmt]
    size = dtype_of(tile_ir.dtype_name(product.a.source)).bits // 8
    if product.k * size < LONG:
        return [stmt]

    def along_k(tile: Any, axis: int, begin: int, count: int) -> Any:
        ranges = [(r.min, r.extent) for r in tile.region]
        ranges[axis] = (ranges[axis][0] + begin, count)
        return tile_ir.region(tile.source, ranges)

    def part(begin: int, count: int) -> Any:
        a = along_k(product.a, -2 if product.transpose_a else -1, begin, count)
        b = along_k(product.b, -1 if product.transpose_b else -2, begin, count)
        clears = tir.const(False, "bool") if begin else product.clear_accum
        return replace(product, a=a, b=b, clear_accum=clears).to_stmt(stmt.value.span or stmt.span)

    head = HEAD // size
    return [part(0, head), part(head, product.k - head)]
