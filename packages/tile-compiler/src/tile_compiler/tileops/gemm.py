"""`T.gemm`: the target's tile product over on-chip tiles; other operands are staged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from tvm import tirx as tir

from tile_compiler.context import InTensors, TileProduct
from tile_compiler.loops.conditions import same
from tile_compiler.tileops.copy import stage_in, stage_out
from tile_compiler.tileops.fill import lower_fill
from tile_compiler.tileops.site import Site, at, cast, element_type, plus, serial
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.ops import Fill, Gemm


def lower_gemm(op: Gemm, site: Site) -> Any:
    """`tl.gemm(a, b, c, clear)` -> the target's tile product, or plain loops where the target offers none.

    Operands in global memory, unless the target takes them in place, on-chip operands that may leave their buffer, and a C that
    shares storage with A or B are copied to on-chip tiles first; C is copied back. The report says why one is copied that the
    target could take.
    """
    before: list[Any] = []
    after: list[Any] = []
    a, b, c = op.a, op.b, op.c
    types = element_type(a), element_type(b), element_type(c)
    turned = bool(op.transpose_a), bool(op.transpose_b)
    problem = InTensors(types, turned, int(op.m), int(op.k), (site.on_chip(a), site.on_chip(b), site.on_chip(c)))
    takes = (False, False, False) if site.ctx.in_place is None else site.ctx.in_place(problem)
    in_place = any(took and not site.on_chip(region) for region, took in zip((a, b), takes))
    fills = in_place and site.on_chip(c) and tile_ir.static(op.clear_accum) != 0
    ends = _Ends.of(op, site, fills)

    def usable(region: Any, takes: bool, bounded: bool = True) -> bool:
        """A tensor's tile may leave it where the product is `bounded` there."""
        if site.on_chip(region):
            return site.ranges.inside(region)
        if not takes:
            return False
        why = _obstacle(region, site) or ("" if bounded else f"it may end where {op.c.source.name} does not")
        if why:
            site.ctx.report.note(
                site.span, f"T.gemm: {region.source.name} is copied to an on-chip tile first, as {why}"
            )
        return not why

    if not usable(a, takes[0], ends.bound_a) or site.share_storage(a, c):
        loads, a = stage_in(a, site, f"{a.source.name}_tile")
        before.append(loads)
    if not usable(b, takes[1], ends.bound_b) or site.share_storage(b, c):
        loads, b = stage_in(b, site, f"{b.source.name}_tile")
        before.append(loads)
    if not usable(c, takes[2]):
        target = c
        loads, c = stage_in(c, site, f"{c.source.name}_tile")
        before += [] if tile_ir.static(op.clear_accum) == 1 else [loads]
        after.append(stage_out(c, target, site))
    if fills and (partial := ends.partial(op)) is not None:
        zero = Fill(c, cast(tir.const(0, "int32"), element_type(c)))
        clears = tir.const(True, "bool") if tile_ir.static(op.clear_accum) == 1 else tir.Cast("bool", op.clear_accum)
        before.append(tir.IfThenElse(tir.And(clears, partial), lower_fill(zero, site), None))
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
        ahead=tuple(replace(site.ahead[r.source], of_a=r is op.a) for r in (op.a, op.b) if r.source in site.ahead),
        limits=ends.limits,
        leaves=ends.leaves(*(not site.on_chip(region) for region in (a, b, c))),
        prepared=ends.prepared(site, b),
    )
    body = None if site.ctx.tile_product is None else site.ctx.tile_product(product)
    if body is None:
        body = _plain_loops(product, a, b, c, op)
    return tile_ir.sequence([*before, body, *after])


@dataclass(frozen=True)
class _Ends:
    """From where on rows and columns of A, B and C, as the product has them, are zeros or outside of a tensor (None: nowhere);
    `kept`: C is added to, or holds zeros there."""

    a: tuple[Any, Any]
    b: tuple[Any, Any]
    c: tuple[Any, Any]
    kept: bool

    @classmethod
    def of(cls, op: Gemm, site: Site, fills: bool) -> _Ends:
        a, b = site.limits(op.a)[-2:], site.limits(op.b)[-2:]
        c = (None, None) if site.on_chip(op.c) else site.limits(op.c)[-2:]
        a, b = (part[::-1] if turned else part for part, turned in ((a, op.transpose_a), (b, op.transpose_b)))
        return cls(a, b, c, fills or tile_ir.static(op.clear_accum) == 0)

    def partial(self, op: Gemm) -> Any:
        """Whether the product ends before C, a condition; None where it does not."""
        sizes = zip(self.limits[:2], (op.m, op.n))
        conditions = [limit < tir.const(size, str(limit.ty)) for limit, size in sizes if limit is not None]
        return None if not conditions else reduce(tir.Or, conditions)

    @property
    def limits(self) -> tuple[Any, Any, Any]:
        """`TileProduct.limits`. Zeros of A and B add nothing to C, which `clear` would have to overwrite."""
        m, n = (_least(zeros if self.kept else None, end) for zeros, end in zip((self.a[0], self.b[1]), self.c))
        return m, n, _least(self.a[1], self.b[0])

    @property
    def bound_a(self) -> bool:
        """Whether the limits keep a product inside of A's rows."""
        return self._bound(self.a[0], self.c[0])

    @property
    def bound_b(self) -> bool:
        return self._bound(self.b[1], self.c[1])

    def _bound(self, end: Any, of_c: Any) -> bool:
        return end is None or self.kept or (of_c is not None and same(end, of_c))

    def prepared(self, site: Site, b: Any) -> Any:
        """`TileProduct.prepared`."""
        stays, within = site.stays, [limit for limit in self.limits[1:] if limit is not None]
        if stays is None or site.on_chip(b) or not all(map(stays.keeps, within)):
            return None
        return stays.later

    def leaves(self, a: bool, b: bool, c: bool) -> tuple[bool, bool, bool]:
        """`TileProduct.leaves`, where the operands named lie in tensors."""
        m, k_of_a = (a and end is not None for end in self.a)
        k_of_b, n = (b and end is not None for end in self.b)
        of_c = [c and end is not None for end in self.c]
        return m or of_c[0], n or of_c[1], k_of_a or k_of_b


def _least(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return a if same(a, b) else tir.min(a, b)


def _obstacle(region: Any, site: Site) -> str:
    """Why a tensor's tile, its last two dimensions, is not taken where it lies; empty where it has rows in one piece, begins
    inside of the tensor and leaves it at the ends of these dimensions at most, where zeros are read."""
    strides, sizes = region.source.ty.strides, region.source.ty.shape
    if len(strides) and tile_ir.static(strides[-1]) != 1:
        return "its rows do not lie in one piece"
    if region.source in site.safe:
        return "it has a safe value"
    for r in region.region:
        if not site.ranges.proves(r.min >= 0):
            return f"{r.min} >= 0 is not known (T.assume says so)"
    for r, size in zip(region.region[:-2], sizes):
        if not site.ranges.below(last := r.min + r.extent - 1, size):
            return f"{last} < {size} is not known (T.assume says so)"
    return ""


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
