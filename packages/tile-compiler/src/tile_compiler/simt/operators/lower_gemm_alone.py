"""`T.gemm` where no matrix instruction fits: each thread sums the products of its own elements of C."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.instructions import MatrixMultiply
from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.gemm import cleared
from tile_compiler.simt.operators.nests import address, int32, load, local, run, serial, store, under, unrolled
from tile_compiler.tileops.site import cast, element_type
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Layout
from tilelang.ops import Gemm


def _value(region: Any, row: Any, column: Any, transposed: bool) -> Any:
    """An element of an operand, `row` and `column` in the operand's own axes."""
    return tir.BufferLoad(region.source, _index(region, row, column, transposed))


def _index(region: Any, row: Any, column: Any, transposed: bool) -> list[Any]:
    at = (column, row) if transposed else (row, column)
    return [*(r.min for r in region.region[:-2]), *(r.min + x for r, x in zip(region.region[-2:], at))]


def multiply_add(op: Gemm, low: Lowering) -> Any:
    """Each thread: `for k: for its elements (i, j): sum += A[i, k] * B[k, j]`."""
    c, dist = low.registers(op.c.source), low.distribution(op.c.source)
    result = element_type(op.c)
    wide = result if not dtype_of(result).is_float or result == "float64" else "float32"
    sums = c
    before: list[Any] = []
    after: list[Any] = []
    if wide != result:
        sums = local(dist.steps, wide, f"{op.c.source.name}_sum")
        low.temporaries.append(tir.AllocBuffer(sums))
        before.append(unrolled("r", dist.steps, lambda r: store(sums, cast(load(c, r), wide), r)))
        after.append(unrolled("r", dist.steps, lambda r: store(c, cast(load(sums, r), result), r)))
    zero = unrolled("r", dist.steps, lambda r: store(sums, tir.const(0, wide), r))

    def step(k: Any) -> Any:
        def element(r: Any) -> Any:
            (i, j), conditions = dist.place(low.tx, r)
            a, b = _value(op.a, i, k, op.transpose_a), _value(op.b, k, j, op.transpose_b)
            product = cast(a, wide) * cast(b, wide)
            return under(conditions, store(sums, load(sums, r) + product, r, span=low.span))

        return unrolled("r", dist.steps, element)

    body = serial("k", op.k, step)
    if tile_ir.static(op.clear_accum) == 1:
        before = []
    return tile_ir.sequence([*before, *cleared(op, zero, low.span), body, *after])


def dot_products(op: Gemm, dot: MatrixMultiply, low: Lowering) -> Any:
    """Each thread: `for k in steps of 4: for its elements (i, j): a4 = A[i, k:k+4]; b4 = B[k:k+4, j]; sum += a4 . b4`."""
    c, dist = low.registers(op.c.source), low.distribution(op.c.source)
    a, b = (local(dot.k, element_type(r), f"{r.source.name}_part") for r in (op.a, op.b))
    low.temporaries += [tir.AllocBuffer(a), tir.AllocBuffer(b)]
    zero = unrolled("r", dist.steps, lambda r: store(c, tir.const(0, element_type(op.c)), r))

    def part(into: Any, region: Any, at: tuple[Any, Any], k_axis: int, transposed: bool) -> Any:
        """The neighbours along k from `at` on: one vector, where memory has them so."""
        layout, start = low.layout(region.source), tile_ir.static(region.region[-1].min)
        k_last = (k_axis == 1) != transposed
        aligned = start is not None and start % dot.k == 0
        if k_last and aligned and isinstance(layout, Layout) and layout.vector_width(-1, dot.k) == dot.k:
            index = [low.simplify(x) for x in _index(region, *at, transposed)]
            index[-1] = tir.Ramp(index[-1], tir.const(1, str(index[-1].ty)), dot.k)
            return store(into, tir.BufferLoad(region.source, index), tir.Ramp(int32(0), int32(1), dot.k))

        def element(u: Any) -> Any:
            row, column = (x + u if axis == k_axis else x for axis, x in enumerate(at))
            return store(into, _value(region, row, column, transposed), u)

        return unrolled("u", dot.k, element)

    def step(k: Any) -> Any:
        first = k * dot.k

        def element(r: Any) -> Any:
            (i, j), conditions = dist.place(low.tx, r)
            body = [
                part(a, op.a, (i, first), 1, op.transpose_a),
                part(b, op.b, (first, j), 0, op.transpose_b),
                run(dot.name, *dot.arguments(address(c, r), address(a, 0), address(b, 0)), span=low.span),
            ]
            return under(conditions, tile_ir.sequence([s for x in body for s in tile_ir.statements(x)]))

        return unrolled("r", dist.steps, element)

    return tile_ir.sequence([*cleared(op, zero, low.span), serial("k", op.k // dot.k, step)])
