"""The lowering of `T.gemm`: warps of `ldmatrix` and `mma.sync`, or a loop over k in each thread."""

from __future__ import annotations

from typing import Any

from tvm import tirx as tir

from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.gemm import cleared
from tile_compiler.simt.operators.nests import (
    address,
    int32,
    is_fragment,
    load,
    local,
    run,
    serial,
    store,
    under,
    unrolled,
)
from tile_compiler.simt.operators.warps import WarpTiling
from tile_compiler.tileops.site import cast, element_type
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.layout import Layout
from tilelang.ops import Gemm


def lower_gemm(op: Gemm, tiles: WarpTiling | None, low: Lowering) -> Any:
    """`tl.gemm(a, b, c)` -> `for k_block: ldmatrix(a); ldmatrix(b); mma(c, a, b)`, or sums of products."""
    if tiles is None:
        low.ctx.report.note(low.span, "gemm: multiply-add in each thread (no matrix instruction for it)")
        return _multiply_add(op, low)
    low.ctx.report.note(
        low.span, f"gemm: {tiles.mma.name[4:]}, {tiles.rows} x {tiles.columns} warps" + _repeated(tiles)
    )
    return _Mma(op, tiles, low).lower()


def _repeated(tiles: WarpTiling) -> str:
    return f", computed {tiles.copies} times" if tiles.copies > 1 else ""


class _Mma:
    def __init__(self, op: Gemm, tiles: WarpTiling, low: Lowering) -> None:
        self.op, self.tiles, self.low = op, tiles, low
        self.mma, self.per = tiles.mma, tiles.mma.per
        self.lane, self.warp = low.tx % 32, low.tx // 32

    def lower(self) -> Any:
        op, tiles, mma = self.op, self.tiles, self.mma
        c = self.low.registers(op.c.source)
        total = tiles.row_blocks * tiles.column_blocks * 4
        out: list[Any] = cleared(
            op, unrolled("r", total, lambda r: store(c, tir.const(0, mma.result), r)), self.low.span
        )
        a, a_size, a_loads = self._a()
        b, b_size, b_loads = self._b()

        def step(k: Any) -> Any:
            def product(i: Any) -> Any:
                def one(j: Any) -> Any:
                    return run(
                        mma.name,
                        address(c, (i * tiles.column_blocks + j) * 4),
                        address(a, a_size(i, k)),
                        address(b, b_size(j, k)),
                        span=self.low.span,
                    )

                return unrolled("j", tiles.column_blocks, one)

            body = [*a_loads(k), *b_loads(k), unrolled("i", tiles.row_blocks, product)]
            return tile_ir.sequence([s for part in body for s in tile_ir.statements(part)])

        out.append(unrolled("ki", tiles.k_blocks, step))
        return tile_ir.sequence(out)

    def _a(self) -> tuple[Any, Any, Any]:
        """(registers of A, place of block (i, k) in them, statements that fill them for k)."""
        tiles, size = self.tiles, self.mma.a_registers
        if is_fragment(self.op.a.source):
            return self.low.registers(self.op.a.source), lambda i, k: (i * tiles.k_blocks + k) * size, lambda k: []
        held = local(tiles.row_blocks * size, self.mma.operand, f"{self.op.a.source.name}_frag")
        self.low.temporaries.append(tir.AllocBuffer(held))
        row0 = self.warp % tiles.rows * (tiles.m // tiles.rows)
        matrix = 8 * self.per  # columns of k in one instruction

        def fill(i: Any, k: Any) -> Any:
            row, depth = row0 + i * 16, k * matrix
            if self._by_ldmatrix(self.op.a, self.op.transpose_a):
                half = matrix // 2
                if self.op.transpose_a:  # stored (k, m): lanes 0-7 the first 8 k of the first 8 m
                    at = (depth + self.lane % 8 + self.lane // 16 * 8, row + self.lane // 8 % 2 * 8)
                    return self._matrices(4, True, held, i * size, self.op.a, at)
                at = (row + self.lane % 16, depth + self.lane // 16 * half)
                return self._matrices(4, False, held, i * size, self.op.a, at)

            def element(r: Any) -> Any:
                e = self.per
                m = row + self.lane // 4 + r // e % 2 * 8
                kk = depth + self.lane % 4 * e + r % e + r // (2 * e) * (4 * e)
                return self._element(held, i * size + r, self.op.a, (kk, m) if self.op.transpose_a else (m, kk))

            return unrolled("r", size, element)

        return held, lambda i, k: i * size, lambda k: [unrolled("i", tiles.row_blocks, lambda i: fill(i, k))]

    def _b(self) -> tuple[Any, Any, Any]:
        tiles, size = self.tiles, self.mma.b_registers
        if is_fragment(self.op.b.source):
            blocks = tiles.column_blocks
            return self.low.registers(self.op.b.source), lambda j, k: (k * blocks + j) * size, lambda k: []
        held = local(tiles.column_blocks * size, self.mma.operand, f"{self.op.b.source.name}_frag")
        self.low.temporaries.append(tir.AllocBuffer(held))
        column0 = self.warp // tiles.rows % tiles.columns * (tiles.n // tiles.columns)
        matrix = 8 * self.per
        fast = self._by_ldmatrix(self.op.b, not self.op.transpose_b)

        def pair(j: Any, k: Any, count: int) -> Any:
            """`count` 2 loads two neighbouring blocks of 8 columns at once."""
            column, depth, half = column0 + j * 8, k * matrix, matrix // 2
            next_block = self.lane // 16 * 8 if count == 2 else 0
            if self.op.transpose_b:  # stored (n, k)
                at = (column + self.lane % 8 + next_block, depth + self.lane // 8 % 2 * half)
                return self._matrices(2 * count, False, held, j * size, self.op.b, at)
            at = (depth + self.lane % 16, column + next_block)
            return self._matrices(2 * count, True, held, j * size, self.op.b, at)

        def elements(j: Any, k: Any) -> Any:
            def element(r: Any) -> Any:
                e = self.per
                n = column0 + j * 8 + self.lane // 4
                kk = k * matrix + self.lane % 4 * e + r % e + r // e * (4 * e)
                return self._element(held, j * size + r, self.op.b, (n, kk) if self.op.transpose_b else (kk, n))

            return unrolled("r", size, element)

        def fill(k: Any) -> list[Any]:
            if not fast:
                return [unrolled("j", tiles.column_blocks, lambda j: elements(j, k))]
            pairs, odd = divmod(tiles.column_blocks, 2)
            out = [unrolled("j", pairs, lambda j: pair(j * 2, k, 2))] if pairs else []
            return out + ([pair(int32(tiles.column_blocks - 1), k, 1)] if odd else [])

        return held, lambda j, k: j * size, fill

    def _by_ldmatrix(self, region: Any, transposed: bool) -> bool:
        """Rows of 16 bytes must lie together; only 16-bit elements can be transposed on the way."""
        layout = self.low.layout(region.source)
        chunk = 128 // dtype_of(element_type(region)).bits
        if transposed and self.per != 2:
            return False
        starts = [tile_ir.static(r.min) for r in region.region[-1:]]
        aligned = all(s is not None and s % chunk == 0 for s in starts)
        return isinstance(layout, Layout) and aligned and layout.vector_width(-1, chunk) == chunk

    def _matrices(self, count: int, transposed: bool, held: Any, offset: Any, region: Any, at: tuple[Any, Any]) -> Any:
        name = f"tl::ldmatrix_x{count}{'_trans' if transposed else ''}"
        source = tir.address_of(tir.BufferLoad(region.source, self._index(region, at)))
        return run(name, address(held, offset), source, span=self.low.span)

    def _element(self, held: Any, register: Any, region: Any, at: tuple[Any, Any]) -> Any:
        return store(held, tir.BufferLoad(region.source, self._index(region, at)), register)

    def _index(self, region: Any, at: tuple[Any, Any]) -> list[Any]:
        lead = [r.min for r in region.region[:-2]]
        moved = [r.min + offset for r, offset in zip(region.region[-2:], at)]
        return [self.low.simplify(i) for i in (*lead, *moved)]


def _multiply_add(op: Gemm, low: Lowering) -> Any:
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

    def value(region: Any, row: Any, column: Any, transposed: bool) -> Any:
        at = (column, row) if transposed else (row, column)
        lead = [r.min for r in region.region[:-2]]
        index = [r.min + offset for r, offset in zip(region.region[-2:], at)]
        return cast(tir.BufferLoad(region.source, [*lead, *index]), wide)

    def step(k: Any) -> Any:
        def element(r: Any) -> Any:
            (i, j), conditions = dist.place(low.tx, r)
            product = value(op.a, i, k, op.transpose_a) * value(op.b, k, j, op.transpose_b)
            return under(conditions, store(sums, load(sums, r) + product, r, span=low.span))

        return unrolled("r", dist.steps, element)

    body = serial("k", op.k, step)
    if tile_ir.static(op.clear_accum) == 1:
        before = []
    return tile_ir.sequence([*before, *cleared(op, zero, low.span), body, *after])
