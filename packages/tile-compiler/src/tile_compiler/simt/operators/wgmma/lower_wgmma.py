"""The lowering of `T.gemm` to the asynchronous matrix instructions of warpgroups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import ir
from tvm import tirx as tir

from tile_compiler.simt.lowering import Lowering
from tile_compiler.simt.operators.accumulator import note_accumulator
from tile_compiler.simt.operators.load_operand import OperandLoad
from tile_compiler.simt.operators.nests import address, int32, is_fragment, run, unrolled
from tile_compiler.simt.operators.wgmma.shared_matrix import shared_matrix
from tile_compiler.simt.operators.wgmma.tiling import WarpgroupTiling
from tile_compiler.tileops.site import element_type
from tilelang.ir import tile_ir
from tilelang.ir.dtypes import dtype_of
from tilelang.ops import Gemm

Operand = Callable[[Any, Any], Any]  # (block along m or n, step along k) -> the instruction's argument


def lower_wgmma(op: Gemm, tiles: WarpgroupTiling, low: Lowering) -> Any:
    """`tl.gemm(a, b, c)` -> `hold(c); fence; for k_block: wgmma(c, a, b); commit`.

    Nothing waits for the product: `place_wgmma_waits` finds out where somebody has to. A product that starts from 0
    tells the first step so and spares c the zeros. A left operand that does not lie along k is loaded first, all of it.
    """
    c, size = low.registers(op.c.source), tiles.wgmma.c_fragment(tiles.width).local_size
    group = low.warpgroup() if tiles.rows * tiles.columns > 1 else int32(0)
    row, column = _place(tiles, group)
    left, right = tiles.operands(op)
    loads: list[Any] = []
    held: list[Any] = []
    if tiles.loaded:
        load = _loaded(left, tiles, low)
        loads = [unrolled("ki", tiles.k_blocks, lambda k: tile_ir.sequence(load.fill((row, k * tiles.wgmma.k), k)))]
        held = [_hold(load.held, left, low)]
        a = _places(load, low)
    elif is_fragment(left.source):
        held = [_hold(low.registers(left.source), left, low)]
        a = _registers(left, tiles, low)
    else:
        a = _shared(left, tiles, True, row, bool(op.transpose_a), low)
    b = _shared(right, tiles, False, column, not (tiles.turned or op.transpose_b), low)
    name = _name(op, tiles)

    def step(k: Any) -> Any:
        if isinstance(k, ir.Var):
            low.ranges.iterate(k, 0, tiles.k_blocks)

        def product(i: Any, j: Any) -> Any:
            first = low.simplify((i * tiles.column_blocks + j) * size)
            return run(name, address(c, first), a(i, k), b(j, k), _keeps(op, k), span=low.span)

        return unrolled("i", tiles.row_blocks, lambda i: unrolled("j", tiles.column_blocks, lambda j: product(i, j)))

    _note(op, tiles, low)
    return tile_ir.sequence(
        [
            *loads,
            _hold(c, op.c, low),
            *held,
            run("tl::wgmma_fence", span=low.span),
            unrolled("ki", tiles.k_blocks, step),
            run("tl::wgmma_commit", span=low.span),
        ]
    )


def _place(tiles: WarpgroupTiling, group: Any) -> tuple[Any, Any]:
    """(first row, first column) of warpgroup number `group` in C."""
    rows, columns = tiles.rows, tiles.columns
    row = int32(0) if rows == 1 else group if columns * tiles.copies == 1 else group % rows
    column = int32(0) if columns == 1 else group // rows % columns if tiles.copies > 1 else group // rows
    return row * (tiles.m // rows), column * (tiles.n // columns)


def _registers(region: Any, tiles: WarpgroupTiling, low: Lowering) -> Operand:
    held, size, steps = low.registers(region.source), tiles.wgmma.a_fragment.local_size, tiles.k_blocks
    return lambda block, k: address(held, low.simplify((block * steps + k) * size))


def _places(load: OperandLoad, low: Lowering) -> Operand:
    return lambda block, k: address(load.held, low.simplify(load.place(block, k)))


def _loaded(region: Any, tiles: WarpgroupTiling, low: Lowering) -> OperandLoad:
    """How threads load the left operand, all steps along k of it, from shared memory where k is not last."""
    fragment, lanes = tiles.left_fragment, tiles.wgmma.lanes
    load = OperandLoad(region, element_type(region), fragment, True, 0, tiles.row_blocks, lanes, low, tiles.k_blocks)
    low.ctx.report.note(low.span, f"gemm: {region.source.name} to registers by {load.instruction()}")
    return load


def _shared(region: Any, tiles: WarpgroupTiling, is_a: bool, first: Any, mn_major: bool, low: Lowering) -> Operand:
    """Descriptors: of the warpgroup's part, which begins at `first` along m or n, and how far behind it a tile begins."""
    matrix = shared_matrix(low.layout(region.source), element_type(region), mn_major)
    assert matrix is not None, "the rule has chosen the layout"
    *lead, row, column = (r.min for r in region.region)
    at = (row, column + first) if mn_major else (row + first, column)
    start = tir.address_of(tir.BufferLoad(region.source, [low.simplify(i) for i in (*lead, *at)]))
    extent = tiles.wgmma.m if is_a else tiles.width
    return lambda block, k: matrix.descriptor(start, low.simplify(matrix.advance(block * extent, k * tiles.wgmma.k)))


def _hold(registers: Any, region: Any, low: Lowering) -> Any:
    """Keep the compiler of the text from moving accesses of these registers across this place."""
    count = int(registers.ty.shape[0]) * dtype_of(element_type(region)).bits // 32
    return run(f"tl::wgmma_hold<{count}>", address(registers, 0), span=low.span)


def _keeps(op: Gemm, k: Any) -> Any:
    """Whether step `k` adds to C, or writes it without looking."""
    clear = tile_ir.static(op.clear_accum)
    if clear == 0:
        return tir.const(True, "bool")
    number = tile_ir.static(k)
    later = k > 0 if number is None else tir.const(number > 0, "bool")
    return later if clear else tir.Or(tir.Not(op.clear_accum), later)


def _in_registers(op: Gemm, tiles: WarpgroupTiling) -> bool:
    """Whether the left operand is there."""
    return tiles.loaded or is_fragment(tiles.operands(op)[0].source)


def _name(op: Gemm, tiles: WarpgroupTiling) -> str:
    registers = _in_registers(op, tiles)
    majors = ["tl::mn_major" if turned else "tl::k_major" for turned in (op.transpose_a, not op.transpose_b)]
    parts = [str(tiles.width), *(majors[registers:] if tiles.wgmma.either_major else [])]
    return f"{tiles.wgmma.name}{'_rs' if registers else ''}<{', '.join(parts)}>"


def _note(op: Gemm, tiles: WarpgroupTiling, low: Lowering) -> None:
    repeated = f", computed {tiles.copies} times" if tiles.copies > 1 else ""
    if tiles.wgmma.a == "tfloat32" and not {op.a.source, op.b.source} <= low.rounded:
        low.ctx.report.note(
            low.span, "gemm: wgmma cuts float32 operands to the 10 bits of tf32, it does not round them"
        )
    note_accumulator(op, int(low.registers(op.c.source).ty.shape[0]), tiles.wgmma.lanes, low)
    left, source = tiles.operands(op)[0].source.name, "registers" if _in_registers(op, tiles) else "shared memory"
    low.ctx.report.note(
        low.span,
        f"gemm: {tiles.label}, {left} from {source}, {tiles.rows} x {tiles.columns} warpgroups{repeated}",
    )
