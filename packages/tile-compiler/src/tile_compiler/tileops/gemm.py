"""`T.gemm`: the target's tile product over on-chip tiles; other operands are staged."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.context import TileProduct
from tile_compiler.loops.conditions import same
from tile_compiler.tileops.copy import stage_in, stage_out
from tile_compiler.tileops.site import Site, at, cast, element_type, plus, serial
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.ops import Gemm


def lower_gemm(op: Gemm, site: Site) -> Any:
    """`tl.gemm(a, b, c, clear)` -> the target's tile product, or plain loops where the target offers none.

    Operands in global memory, unless the target takes them in place, operands that may leave their buffer, and a C that
    shares storage with A or B are copied to on-chip tiles first; C is copied back.
    """
    before: list[Any] = []
    after: list[Any] = []
    a, b, c = op.a, op.b, op.c
    types = element_type(a), element_type(b), element_type(c)
    in_place = site.ctx.in_place is not None and site.ctx.in_place(*types)

    def usable(region: Any, strides_known: bool) -> bool:
        fits = site.on_chip(region) or (in_place and _plain(region, strides_known))
        return fits and site.ranges.inside(region)

    limits = _limits(op, site, not usable(c, False))
    if not usable(a, True) or site.share_storage(a, c):
        loads, a = stage_in(a, site, f"{a.source.name}_tile")
        before.append(loads)
    if not usable(b, op.transpose_b) or site.share_storage(b, c):
        loads, b = stage_in(b, site, f"{b.source.name}_tile")
        before.append(loads)
    if not usable(c, False):
        target = c
        loads, c = stage_in(c, site, f"{c.source.name}_tile")
        before += [] if tile_ir.static(op.clear_accum) == 1 else [loads]
        after.append(stage_out(c, target, site))
    rows_a, depth_a = (-1, -2) if op.transpose_a else (-2, -1)
    depth_b, cols_b = (-1, -2) if op.transpose_b else (-2, -1)
    product = TileProduct(
        m=op.m,
        n=op.n,
        k=op.k,
        a=_operand(a, rows_a, depth_a),
        b=_operand(b, depth_b, cols_b),
        c=_operand(c, -2, -1),
        clear=op.clear_accum,
        temporary=site.temporary,
        span=site.span,
        ahead=tuple(site.ahead[r.source] for r in (op.a, op.b) if r.source in site.ahead),
        limits=limits,
    )
    body = None if site.ctx.tile_product is None else site.ctx.tile_product(product)
    if body is None:
        body = _plain_loops(product, a, b, c, op)
    return tile_ir.sequence([*before, body, *after])


def _limits(op: Gemm, site: Site, staged: bool) -> tuple[Any, Any, Any]:
    """`TileProduct.limits`. Zeros of A and B add nothing to C, which `clear` would have to overwrite; rows and columns of a
    `staged` C that are outside of its tensor are not copied back."""
    a, b = site.limits(op.a), site.limits(op.b)
    rows, depth_a = a[-1 if op.transpose_a else -2], a[-2 if op.transpose_a else -1]
    depth_b, columns = b[-1 if op.transpose_b else -2], b[-2 if op.transpose_b else -1]
    kept = tile_ir.static(op.clear_accum) == 0
    outside = site.limits(op.c)[-2:] if staged and not site.on_chip(op.c) else (None, None)
    m, n = (_least(zeros if kept else None, end) for zeros, end in zip((rows, columns), outside))
    return m, n, _least(depth_a, depth_b)


def _least(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return a if same(a, b) else tir.min(a, b)


def _plain(region: Any, strides_known: bool) -> bool:
    """Whether a tensor's tile, its last two dimensions, has rows in one piece, and a known stride between them."""
    buffer = region.source
    if not len(buffer.ty.strides):
        return not strides_known or tile_ir.static(buffer.ty.shape[-1]) is not None
    apart, along = (tile_ir.static(stride) for stride in buffer.ty.strides[-2:])
    return along == 1 and (apart is not None or not strides_known)


def _operand(region: Any, row: int, col: int) -> tuple[Any, tuple[Any, ...], int, int]:
    rank = len(region.region)
    return region.source, tuple(tile_ir.mins(region)), row % rank, col % rank


def _plain_loops(product: TileProduct, a: Any, b: Any, c: Any, op: Gemm) -> Any:
    """Any element types: sums in C's type, float32 at least for floats."""
    result = element_type(c)
    wide = result if not dtype_of(result).is_float else "float64" if result == "float64" else "float32"
    acc = tir.decl_buffer((1,), wide, name="sum", scope="local", layout=None)
    zero = [tir.const(0, "int32")]

    def load(operand: tuple[Any, Any, int, int], row: Any, col: Any) -> Any:
        buffer, origin, row_dim, col_dim = operand
        indices = list(origin)
        indices[row_dim], indices[col_dim] = plus(indices[row_dim], row), plus(indices[col_dim], col)
        return cast(tir.BufferLoad(buffer, indices), wide)

    def element(i: Any, j: Any) -> Any:
        rank = len(c.region)
        where = at(c, {rank - 2: i, rank - 1: j})
        start = tir.const(0, wide)
        if tile_ir.static(product.clear) != 1:
            old = cast(tir.BufferLoad(c.source, where), wide)
            start = old if tile_ir.static(product.clear) == 0 else tir.Select(product.clear, start, old)
        total = tir.BufferLoad(acc, zero)
        step = serial(
            "k", product.k, lambda k: tir.BufferStore(acc, total + load(product.a, i, k) * load(product.b, k, j), zero)
        )
        store = tir.BufferStore(c.source, cast(total, result), where, span=product.span)
        return tile_ir.sequence([tir.AllocBuffer(acc), tir.BufferStore(acc, start, zero), step, store])

    return serial("i", product.m, lambda i: serial("j", product.n, lambda j: element(i, j)))
