"""Products that run beside the statements after them: which pieces of a loop they are, and what they keep busy."""

from __future__ import annotations

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
